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


def _softplus(x: Value, spec: Activation) -> Value:
    """Compute log(1 + exp(x)) without overflow of the exponential."""
    inner = const(1) + bound(-tirx.abs(x), polynomials.exp)
    return tirx.max(x, const(0)) + bound(inner, polynomials.logarithm)


ACTIVATIONS: Mapping[str, Callable[[Value, Activation], Value]] = {
    "affine": lambda x, spec: x * const(spec.alpha) + const(spec.beta),
    "elu": lambda x, spec: tirx.Select(x >= const(0), x, const(spec.alpha) * (polynomials.exp(x) - const(1))),
    "hardsigmoid": lambda x, spec: tirx.max(tirx.min(x * const(spec.alpha) + const(spec.beta), const(1)), const(0)),
    "leakyrelu": lambda x, spec: tirx.Select(x >= const(0), x, x * const(spec.alpha)),
    "relu": lambda x, spec: tirx.max(x, const(0)),
    "scaledtanh": lambda x, spec: const(spec.alpha) * bound(x * const(spec.beta), polynomials.tanh),
    "sigmoid": lambda x, spec: polynomials.sigmoid(x),
    "softplus": _softplus,
    "softsign": lambda x, spec: x / (const(1) + tirx.abs(x)),
    "tanh": lambda x, spec: polynomials.tanh(x),
    "thresholdedrelu": lambda x, spec: tirx.Select(x > const(spec.alpha), x, const(0)),
}
"""ONNX's activation functions by their names in lower case."""


class CellEquations:
    """The equations of a recurrence's cell in one direction."""

    def __init__(self, recurrence: Recurrence, direction: int) -> None:
        self._recurrence = recurrence
        self._activations = recurrence.activations[direction]

    def next_c(self, gate: Gate, c: Value, peephole: Gate) -> Value:
        """Return an LSTM's next cell; `gate` returns a gate's input to its activation, without peepholes."""

        def with_input(input_gate: Value) -> Value:
            if self._recurrence.coupled:
                forget_gate = const(1) - input_gate
            else:
                forget_gate = self._activate(0, self._with_peephole(gate, FORGET, c, peephole))
            return forget_gate * c + input_gate * self._activate(1, gate(CELL))

        return bound(self._activate(0, self._with_peephole(gate, INPUT, c, peephole)), with_input)

    def lstm_next_h(self, gate: Gate, c: Value, peephole: Gate) -> Value:
        """Return an LSTM's next state from its next cell."""
        return self._activate(0, self._with_peephole(gate, OUTPUT, c, peephole)) * self._activate(2, c, clips=False)

    def opening(self, gate: Value) -> Value:
        """Return the activation of a GRU's update or reset gate, or a plain RNN's next state."""
        return self._activate(0, gate)

    def gru_next_h(self, update: Value, candidate: Value, h: Value) -> Value:
        """Return a GRU's next state; `candidate` is the hidden gate's input to its activation."""
        return bound(update, lambda z: (const(1) - z) * self._activate(1, candidate) + z * h)

    def _with_peephole(self, gate: Gate, index: int, c: Value, peephole: Gate) -> Value:
        return gate(index) + peephole(index) * c if self._recurrence.peepholes else gate(index)

    def _activate(self, index: int, x: Value, clips: bool = True) -> Value:
        activation, limit = self._activations[index], self._recurrence.clip
        if limit is not None and clips:
            x = tirx.max(tirx.min(x, const(limit)), const(-limit))
        return bound(x, lambda x: ACTIVATIONS[activation.name](x, activation))
