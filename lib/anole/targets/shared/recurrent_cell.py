"""The equations of recurrent cells, as TensorIR expressions of one hidden unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import tirx

from anole.ir import polynomials
from anole.ir.polynomials import Value, bound, const
from anole.targets.shared.recurrence import Activation, Recurrence

INPUT, OUTPUT, FORGET, CELL = range(4)
"""The gates of an LSTM."""

UPDATE, RESET, HIDDEN = range(3)
"""The gates of a GRU."""

Gate = Callable[[int], Value]


def _softplus(x: Value, own: Activation) -> Value:
    """Compute log(1 + exp(x)) without overflow of the exponential."""
    inner = const(1) + bound(-tirx.abs(x), polynomials.exp)
    return tirx.max(x, const(0)) + bound(inner, polynomials.logarithm)


ACTIVATIONS: Mapping[str, Callable[[Value, Activation], Value]] = {
    "affine": lambda x, own: x * const(own.alpha) + const(own.beta),
    "elu": lambda x, own: tirx.Select(x >= const(0), x, const(own.alpha) * (polynomials.exp(x) - const(1))),
    "hardsigmoid": lambda x, own: tirx.max(tirx.min(x * const(own.alpha) + const(own.beta), const(1)), const(0)),
    "leakyrelu": lambda x, own: tirx.Select(x >= const(0), x, x * const(own.alpha)),
    "relu": lambda x, own: tirx.max(x, const(0)),
    "scaledtanh": lambda x, own: const(own.alpha) * bound(x * const(own.beta), polynomials.tanh),
    "sigmoid": lambda x, own: polynomials.sigmoid(x),
    "softplus": _softplus,
    "softsign": lambda x, own: x / (const(1) + tirx.abs(x)),
    "tanh": lambda x, own: polynomials.tanh(x),
    "thresholdedrelu": lambda x, own: tirx.Select(x > const(own.alpha), x, const(0)),
}
"""ONNX's activation functions by their names in lower case."""


class CellEquations:
    """The equations of a recurrence's cell in one direction."""

    def __init__(self, recurrence: Recurrence, direction: int) -> None:
        self._recurrence = recurrence
        self._activations = recurrence.activations[direction]

    def next_c(self, gate: Gate, c: Value, peephole: Gate) -> Value:
        """Return an LSTM's next cell; `gate` returns a gate's input to its activation, without peepholes."""

        def with_input(taken: Value) -> Value:
            if self._recurrence.coupled:
                kept = const(1) - taken
            else:
                kept = self._activate(0, self._with_peephole(gate, FORGET, c, peephole))
            return kept * c + taken * self._activate(1, gate(CELL))

        return bound(self._activate(0, self._with_peephole(gate, INPUT, c, peephole)), with_input)

    def h_of_c(self, gate: Gate, c: Value, peephole: Gate) -> Value:
        """Return an LSTM's next state from its next cell."""
        return self._activate(0, self._with_peephole(gate, OUTPUT, c, peephole)) * self._activate(2, c, clips=False)

    def opening(self, gate: Value) -> Value:
        """Return the activation of a GRU's update or reset gate, or a plain RNN's next state."""
        return self._activate(0, gate)

    def mixed(self, update: Value, candidate: Value, h: Value) -> Value:
        """Return a GRU's next state; `candidate` is the hidden gate's input to its activation."""
        return bound(update, lambda z: (const(1) - z) * self._activate(1, candidate) + z * h)

    def _with_peephole(self, gate: Gate, which: int, c: Value, peephole: Gate) -> Value:
        return gate(which) + peephole(which) * c if self._recurrence.peepholes else gate(which)

    def _activate(self, which: int, x: Value, clips: bool = True) -> Value:
        own, limit = self._activations[which], self._recurrence.clip
        if limit is not None and clips:
            x = tirx.max(tirx.min(x, const(limit)), const(-limit))
        return bound(x, lambda x: ACTIVATIONS[own.name](x, own))
