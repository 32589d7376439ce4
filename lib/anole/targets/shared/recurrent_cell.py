"""The equations of recurrent cells, as expressions of one hidden unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import tirx

from anole.targets.shared import polynomials
from anole.targets.shared.polynomials import Value, bound
from anole.targets.shared.recurrence import Activation, Recurrence

INPUT, OUTPUT, FORGET, CELL = range(4)
"""The gates of an LSTM."""

UPDATE, RESET, HIDDEN = range(3)
"""The gates of a GRU."""

Gate = Callable[[int], Value]


def _leaky(x: Value, own: Activation) -> Value:
    return tirx.Select(x >= _const(0), x, x * _const(own.alpha))


def _elu(x: Value, own: Activation) -> Value:
    return tirx.Select(x >= _const(0), x, _const(own.alpha) * (polynomials.exp(x) - _const(1)))


def _softplus(x: Value, own: Activation) -> Value:
    """Computes log(1 + exp(x)) so that the exponential is never infinite."""
    inner = _const(1) + bound(-tirx.abs(x), polynomials.exp)
    return tirx.max(x, _const(0)) + bound(inner, polynomials.logarithm)


ACTIVATIONS: Mapping[str, Callable[[Value, Activation], Value]] = {
    "affine": lambda x, own: x * _const(own.alpha) + _const(own.beta),
    "elu": _elu,
    "hardsigmoid": lambda x, own: tirx.max(tirx.min(x * _const(own.alpha) + _const(own.beta), _const(1)), _const(0)),
    "leakyrelu": _leaky,
    "relu": lambda x, own: tirx.max(x, _const(0)),
    "scaledtanh": lambda x, own: _const(own.alpha) * bound(x * _const(own.beta), polynomials.tanh),
    "sigmoid": lambda x, own: polynomials.sigmoid(x),
    "softplus": _softplus,
    "softsign": lambda x, own: x / (_const(1) + tirx.abs(x)),
    "tanh": lambda x, own: polynomials.tanh(x),
    "thresholdedrelu": lambda x, own: tirx.Select(x > _const(own.alpha), x, _const(0)),
}
"""The activation functions that ONNX lists, by their name in lower case."""


class CellEquations:
    """The equations of a recurrence's cell in one direction."""

    def __init__(self, recurrence: Recurrence, direction: int) -> None:
        self._recurrence = recurrence
        self._activations = recurrence.activations[direction]

    def next_c(self, gate: Gate, c: Value, peephole: Gate) -> Value:
        """Returns an LSTM's next cell.

        Args:
            gate: what a gate's function is applied to, without peepholes.
            c: the cell.
            peephole: the peephole weight of the input, output or forget gate.
        """

        def with_input(taken: Value) -> Value:
            if self._recurrence.coupled:
                kept = _const(1) - taken
            else:
                kept = self._activate(0, self._seeing(gate, FORGET, c, peephole))
            return kept * c + taken * self._activate(1, gate(CELL))

        return bound(self._activate(0, self._seeing(gate, INPUT, c, peephole)), with_input)

    def h_of_c(self, gate: Gate, c: Value, peephole: Gate) -> Value:
        """Returns an LSTM's next state from its next cell."""
        return self._activate(0, self._seeing(gate, OUTPUT, c, peephole)) * self._activate(2, c, clips=False)

    def opening(self, gate: Value) -> Value:
        """Returns how far a GRU's update or reset gate is open."""
        return self._activate(0, gate)

    def mixed(self, update: Value, candidate: Value, h: Value) -> Value:
        """Returns a GRU's next state.

        Args:
            update: how far the update gate is open.
            candidate: what the hidden gate's function is applied to.
            h: the state.
        """
        return bound(update, lambda z: (_const(1) - z) * self._activate(1, candidate) + z * h)

    def next_h(self, gate: Value) -> Value:
        """Returns a plain recurrent network's next state."""
        return self._activate(0, gate)

    def _seeing(self, gate: Gate, which: int, c: Value, peephole: Gate) -> Value:
        return gate(which) + peephole(which) * c if self._recurrence.peepholes else gate(which)

    def _activate(self, which: int, x: Value, clips: bool = True) -> Value:
        own, limit = self._activations[which], self._recurrence.clip
        if limit is not None and clips:
            x = tirx.max(tirx.min(x, _const(limit)), _const(-limit))
        return bound(x, lambda x: ACTIVATIONS[own.name](x, own))


def _const(value: float) -> Any:
    return tirx.const(value, "float32")
