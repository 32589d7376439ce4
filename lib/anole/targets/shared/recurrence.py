"""Describes a recurrent layer whose time loop is one kernel: an LSTM, a GRU or a plain recurrent network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from anole.keys import canonical_json
from anole.plain import from_plain, to_plain

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
    """A tensor that the kernel reads or writes."""

    name: str
    shape: tuple[int, ...]
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
        quantized: whether the state is quantised to 8 bits in each step, see `parameters`.
        weight_dtype: the type of the recurrent weights; a type of integers only if the layer is quantised.
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
        ``recurrent`` the weights R, block by block. If the state is quantised, they are integers less their zero
        point, and ``scales`` holds their scales.
        """
        rows = (self.batch, self.steps) if self.batch_first else (self.steps, self.batch)
        states = (self.directions, self.batch, self.hidden)
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
            found.append(Parameter("lengths", (self.batch,), "int32"))
        return tuple(found)

    @property
    def results(self) -> tuple[Parameter, ...]:
        """The kernel's results: the state after each step, and the last states."""
        extents = {"t": self.steps, "n": self.batch, "d": self.directions}
        states = (self.directions, self.batch, self.hidden)
        found = [Parameter("y", (*(extents[axis] for axis in self.axes), self.hidden)), Parameter("last_h", states)]
        return (*found, Parameter("last_c", states)) if self.cell == "lstm" else tuple(found)

    def to_json(self) -> str:
        """Returns the description as text, from which `recurrence_of` makes it again."""
        return canonical_json(to_plain(self))


def recurrence_of(func: Any) -> Recurrence | None:
    """Returns the recurrence that a function of TVM computes, or None if it is no recurrent kernel."""
    text = func.attrs.get(RECURRENCE) if func.attrs else None
    return None if text is None else from_plain(Recurrence, json.loads(str(text)))
