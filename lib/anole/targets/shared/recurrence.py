"""The description of a recurrent layer (LSTM, GRU or plain RNN) whose time loop is one kernel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from anole.codec import decode, encode
from anole.keys import canonical_json

RECURRENCE = "anole.recurrence"
"""The function attribute that holds the description as JSON; a target may replace the function by its own kernel."""

LANES = 16
"""Hidden units of a block, contiguous in packed weights: the float32 lanes of a 512-bit register."""

GATES: Mapping[str, int] = {"lstm": 4, "gru": 3, "rnn": 1}
"""Gates of each cell, in ONNX's order: input, output, forget, cell; update, reset, hidden; hidden."""

Cell = Literal["lstm", "gru", "rnn"]


@dataclass(frozen=True)
class Activation:
    """An activation function of ONNX's recurrent operators: its name in lower case, and parameters that it may use."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True)
class Parameter:
    """A tensor that the kernel reads or writes; a dynamic extent is the name of its symbol."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str = "float32"


@dataclass(frozen=True)
class Recurrence:
    """A recurrent layer without the projection of its inputs; terms and equations are ONNX's.

    Attributes:
        steps: length of the sequences.
        batch: number of sequences.
        hidden: hidden units of each direction.
        backward: for each direction, whether it goes from the end to the start.
        activations: the functions f, g and h of each direction, as many as the cell has.
        batch_first: whether sequences, and not steps, are the outer axis of the projected inputs.
        axes: the order of the result's axes: t (steps), n (sequences), d (directions); hidden units are the last axis.
        clip: bound to which the inputs of activations are clipped.
        coupled: whether an LSTM's forget gate is 1 minus its input gate (ONNX: ``input_forget``).
        reset_after: whether a GRU resets after the product with the state (ONNX: ``linear_before_reset``).
        peepholes: whether an LSTM's gates also read the cell.
        lengths: whether each sequence has its own length.
        quantized: whether the state is quantized to 8 bits in each step, see `parameters`.
        weight_dtype: the type of the recurrent weights; an integer type only if the layer is quantized.
        steps_symbol, batch_symbol: the names of the symbols of a dynamic sequence length and batch size; `steps` and
            `batch` are then typical values.
    """

    cell: Cell
    steps: int
    batch: int
    hidden: int
    backward: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    batch_first: bool = False
    axes: str = "tdn"
    clip: float | None = None
    coupled: bool = False
    reset_after: bool = False
    peepholes: bool = False
    lengths: bool = False
    quantized: bool = False
    weight_dtype: str = "float32"
    steps_symbol: str | None = None
    batch_symbol: str | None = None

    @property
    def directions(self) -> int:
        """Number of directions, 1 or 2."""
        return len(self.backward)

    @property
    def gates(self) -> int:
        """Number of gates."""
        return GATES[self.cell]

    @property
    def blocks(self) -> int:
        """Number of blocks of hidden units; the last one may be padded."""
        return -(-self.hidden // LANES)

    @property
    def padded(self) -> int:
        """Hidden units, padding of the last block included."""
        return self.blocks * LANES

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The kernel's operands.

        ``projected`` is the product of the inputs and the weights W plus all biases except the one of `reset_after`;
        ``recurrent`` holds the weights R, block by block. If the state is quantized, they are integers minus their zero
        point, and ``scales`` holds their scales.
        """
        extents = self._extents
        rows = (extents["n"], extents["t"]) if self.batch_first else (extents["t"], extents["n"])
        states = (self.directions, extents["n"], self.hidden)
        parameters = [
            Parameter("projected", (*rows, self.directions, self.gates, self.padded)),
            Parameter("recurrent", (self.directions, self.blocks, self.hidden, self.gates, LANES), self.weight_dtype),
            Parameter("initial_h", states),
        ]
        if self.cell == "lstm":
            parameters.append(Parameter("initial_c", states))
        if self.reset_after:
            parameters.append(Parameter("bias", (self.directions, self.padded)))
        if self.peepholes:
            parameters.append(Parameter("peepholes", (self.directions, 3, self.padded)))
        if self.quantized:
            parameters.append(Parameter("scales", (self.directions, self.gates, self.padded)))
        if self.lengths:
            parameters.append(Parameter("lengths", (extents["n"],), "int32"))
        return tuple(parameters)

    @property
    def results(self) -> tuple[Parameter, ...]:
        """The kernel's results: the state after each step, and the final states."""
        extents = self._extents
        states = (self.directions, extents["n"], self.hidden)
        results = [Parameter("y", (*(extents[axis] for axis in self.axes), self.hidden)), Parameter("last_h", states)]
        return (*results, Parameter("last_c", states)) if self.cell == "lstm" else tuple(results)

    @property
    def _extents(self) -> dict[str, int | str]:
        steps, batch = self.steps_symbol or self.steps, self.batch_symbol or self.batch
        return {"t": steps, "n": batch, "d": self.directions}

    def to_json(self) -> str:
        """Return the description as JSON, which `recurrence_of` reads."""
        return canonical_json(encode(self))


def recurrence_of(func: Any) -> Recurrence | None:
    """Return the recurrence that a TVM function computes, or None if it is not a recurrent kernel."""
    text = func.attrs.get(RECURRENCE) if func.attrs else None
    return None if text is None else decode(Recurrence, json.loads(str(text)))
