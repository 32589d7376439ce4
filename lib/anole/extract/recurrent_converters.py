"""Converters for torch's LSTM, GRU and RNN of any number of layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax

from anole.extract.passes.mutators import extents
from anole.extract.recurrent import Operands, emit_recurrence
from anole.targets.shared.recurrence import GATES, Activation, Cell, Recurrence

_ORDER: Mapping[str, tuple[int, ...]] = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}
"""Where torch has each of ONNX's gates."""

_SIGMOID, _TANH, _RELU = (Activation(name) for name in ("sigmoid", "tanh", "relu"))


def _converter(cell: Cell, *activations: Activation) -> Callable[[Any, Any], tuple[relax.Expr, ...]]:
    """Returns the converter of an operator whose cells have these activation functions."""

    def convert(node: Any, importer: Any) -> tuple[relax.Expr, ...]:
        return _Layers(cell, activations, node, importer).convert()

    return convert


class _Layers:
    """The layers of a call: the result of each is the data of the next one."""

    def __init__(self, cell: Cell, activations: Sequence[Activation], node: Any, importer: Any) -> None:
        data, states, weights, has_biases, n_layers, _, _, is_bidirectional, batch_first = node.args
        env, self._builder = importer.env, importer.block_builder
        self._data = env[data]
        self._states = [env[state] for state in (states if cell == "lstm" else [states])]
        self._weights = [env[weight] for weight in weights]
        self._has_biases, self._n_layers = has_biases, n_layers
        rows = extents(self._data)[:2]
        self._own = Recurrence(
            cell=cell,
            steps=rows[1] if batch_first else rows[0],
            batch=rows[0] if batch_first else rows[1],
            hidden=extents(self._weights[1])[1],
            backward=(False, True)[: 2 if is_bidirectional else 1],
            activations=(tuple(activations),) * (2 if is_bidirectional else 1),
            batch_first=bool(batch_first),
            axes="ntd" if batch_first else "tnd",
            reset_after=cell == "gru",
        )

    def convert(self) -> tuple[relax.Expr, ...]:
        """Returns the result of the last layer, and the last states of all."""
        data, last = self._data, []
        for layer in range(self._n_layers):
            y, *states = emit_recurrence(self._builder, self._own, self._operands(layer, data))
            data = self._emit(relax.op.reshape(y, [*extents(data)[:2], self._own.directions * self._own.hidden]))
            last.append(states)
        return data, *(self._joined(states) for states in zip(*last, strict=True))

    def _operands(self, layer: int, data: ir.Expr) -> Operands:
        """Returns the operands of a layer; the weights of its directions lie one after the other."""
        n_directions = self._own.directions
        n_weights = 4 if self._has_biases else 2
        start = layer * n_directions * n_weights
        directions = [self._weights[start + at * n_weights :][:n_weights] for at in range(n_directions)]
        weight, recurrent, *biases = (
            self._joined([self._emit(relax.op.expand_dims(self._ordered(each), 0)) for each in kind])
            for kind in zip(*directions, strict=True)
        )
        states = [self._of_layer(state, layer) for state in self._states]
        return Operands(
            data,
            weight,
            recurrent,
            bias=self._emit(relax.op.concat(biases, 1)) if biases else None,
            initial_h=states[0],
            initial_c=states[1] if self._own.cell == "lstm" else None,
        )

    def _ordered(self, weight: ir.Expr) -> ir.Expr:
        """Returns a weight or a bias, whose first axis is (gates * hidden), with its gates in ONNX's order."""
        shape, order = extents(weight), np.array(_ORDER[self._own.cell])
        apart = self._emit(relax.op.reshape(weight, [GATES[self._own.cell], self._own.hidden, *shape[1:]]))
        return self._emit(relax.op.reshape(self._emit(relax.op.take(apart, relax.const(order), 0, mode="clip")), shape))

    def _of_layer(self, state: ir.Expr, layer: int) -> ir.Expr:
        if self._n_layers == 1:
            return state
        places = np.arange(self._own.directions) + layer * self._own.directions
        return self._emit(relax.op.take(state, relax.const(places), 0, mode="clip"))

    def _joined(self, values: Sequence[ir.Expr]) -> ir.Expr:
        return values[0] if len(values) == 1 else self._emit(relax.op.concat(list(values), 0))

    def _emit(self, value: ir.Expr) -> relax.Var:
        return self._builder.emit(value)


RECURRENT_CONVERTERS: dict[str, Callable[[Any, Any], Any]] = {
    "gru.input": _converter("gru", _SIGMOID, _TANH),
    "lstm.input": _converter("lstm", _SIGMOID, _TANH, _TANH),
    "rnn_relu.input": _converter("rnn", _RELU),
    "rnn_tanh.input": _converter("rnn", _TANH),
}
"""Converters by the operator's name in a `torch.fx` graph."""
