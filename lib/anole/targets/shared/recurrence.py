"""Describes a recurrent layer whose time loop is one kernel: an LSTM, a GRU or a plain recurrent network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from anole.codec import decode, encode
from anole.keys import canonical_json

RECURRENCE = "anole.recurrence"
"""The attribute of a function that holds the description as JSON; a target may replace the function by its own."""

LANES = 16
"""Hidden units of a block, which lie together in packed weights: a vector register of the widest kind."""

GATES: Mapping[str, int] = {"lstm": 4, "gru": 3, "rnn": 1}
"""Gates of each cell, in ONNX's order: input, output, forget, cell; update, reset, hidden; hidden."""

Cell = Literal["lstm", "gru", "rnn"]


@dataclass(frozen=True)
class Activation:
    """An activation function of ONNX's recurrent operators, by its name in lower case; it may ignore its parameters."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True)
class Parameter:
    """A tensor that the kernel reads or writes; an extent that varies is the name of its symbol."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str = "float32"


@dataclass(frozen=True)
class Recurrence:
    """A recurrent layer behind the product of its inputs; its words and equations are those of ONNX's operators.

    Attributes:
        cell: what a step computes.
        steps: length of the sequences.
        batch: number of the sequences.
        hidden: hidden units of each direction.
        backward: for each direction, whether it goes from the end to the start.
        activations: the functions f, g and h of each direction, as many as the cell has.
        batch_first: whether sequences, and not steps, are the outer axis of the product of the inputs.
        axes: the order of the result's axes: t (steps), n (sequences), d (directions); hidden units are the last one.
        clip: bound of what activations are applied to.
        coupled: whether an LSTM forgets what its input gate does not replace (ONNX: ``input_forget``).
        reset_after: whether a GRU resets after the product with the state (ONNX: ``linear_before_reset``).
        peepholes: whether an LSTM's gates see the cell.
        lengths: whether sequences have lengths of their own.
        quantized: whether the state is quantized to 8 bits in each step, see `parameters`.
        weight_dtype: the type of the recurrent weights; a type of integers only if the layer is quantized.
        steps_symbol, batch_symbol: the names of the symbols that the length and the number of sequences are where they
            vary; `steps` and `batch` are then the usual ones.
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
        """Number of directions."""
        return len(self.backward)

    @property
    def gates(self) -> int:
        """Number of gates."""
        return GATES[self.cell]

    @property
    def blocks(self) -> int:
        """Number of blocks of hidden units, of which the last one may be filled up."""
        return -(-self.hidden // LANES)

    @property
    def padded(self) -> int:
        """Hidden units with those that fill up the last block."""
        return self.blocks * LANES

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The kernel's operands.

        ``projected`` is the product of the inputs and the weights W with all biases but that of `reset_after`;
        ``recurrent`` the weights R, block by block. If the state is quantized, they are integers less their zero
        point, and ``scales`` holds their scales.
        """
        extents = self._extents
        rows = (extents["n"], extents["t"]) if self.batch_first else (extents["t"], extents["n"])
        states = (self.directions, extents["n"], self.hidden)
        found = [
            Parameter("projected", (*rows, self.directions, self.gates, self.padded)),
            Parameter("recurrent", (self.directions, self.blocks, self.hidden, self.gates, LANES), self.weight_dtype),
            Parameter("initial_h", states),
        ]
        if self.cell == "lstm":
            found.append(Parameter("initial_c", states))
        if self.reset_after:
            found.append(Parameter("bias", (self.directions, self.padded)))
        if self.peepholes:
            found.append(Parameter("peepholes", (self.directions, 3, self.padded)))
        if self.quantized:
            found.append(Parameter("scales", (self.directions, self.gates, self.padded)))
        if self.lengths:
            found.append(Parameter("lengths", (extents["n"],), "int32"))
        return tuple(found)

    @property
    def results(self) -> tuple[Parameter, ...]:
        """The kernel's results: the state after each step, and the last states."""
        extents = self._extents
        states = (self.directions, extents["n"], self.hidden)
        found = [Parameter("y", (*(extents[axis] for axis in self.axes), self.hidden)), Parameter("last_h", states)]
        return (*found, Parameter("last_c", states)) if self.cell == "lstm" else tuple(found)

    @property
    def _extents(self) -> dict[str, int | str]:
        steps, batch = self.steps_symbol or self.steps, self.batch_symbol or self.batch
        return {"t": steps, "n": batch, "d": self.directions}

    def to_json(self) -> str:
        """Return the description as text, from which `recurrence_of` makes it again."""
        return canonical_json(encode(self))


def recurrence_of(func: Any) -> Recurrence | None:
    """Return the recurrence that a function of TVM computes, or None if it is no recurrent kernel."""
    text = func.attrs.get(RECURRENCE) if func.attrs else None
    return None if text is None else decode(Recurrence, json.loads(str(text)))
