"""Converters for torch operators that TVM's importer does not support or gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tvm import ir, relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from anole.extract.recurrent import Operands, emit_recurrence
from anole.extract.shifts import shift
from anole.ir.mutators import extents
from anole.targets.shared.recurrence import GATES, Activation, Cell, Recurrence


def _arguments(node: torch.fx.Node) -> list[Any]:
    return list(node.args)


def _three_arguments(node: torch.fx.Node) -> list[Any]:
    """Return the three arguments of a call, with None for omitted ones."""
    return [*node.args, *[None] * (3 - len(node.args))]


def _reduce(operator: Callable[..., ir.Expr], node: torch.fx.Node, importer: Any) -> ir.Expr:
    """Convert a maximum or minimum along some or all axes."""
    data, axes, keeps = _three_arguments(node)
    return importer.block_builder.emit(operator(importer.env[data], axes or None, keepdims=bool(keeps)))


def _resize_nearest(node: torch.fx.Node, importer: Any) -> ir.Expr:
    """Round source positions down, as torch does; TVM's importer rounds to the nearest center."""
    data, size, factors = _three_arguments(node)
    value, emit = importer.env[data], importer.block_builder.emit
    inputs = extents(value)[2:]
    factors = factors or [None] * len(inputs)
    outputs = size or [int(extent * factor) for extent, factor in zip(inputs, factors, strict=True)]
    sides = list(zip(inputs, outputs, factors, strict=True))
    if all((nearest_indices(*side) == np.arange(side[1]) * side[0] // side[1]).all() for side in sides):
        resize = relax.op.image.resize2d
        return emit(resize(value, outputs, None, "NCHW", "nearest_neighbor", "asymmetric", "floor"))
    for axis, side in enumerate(sides, start=2):
        value = emit(relax.op.take(value, relax.const(nearest_indices(*side)), axis))
    return value


def nearest_indices(inputs: int, outputs: int, factor: float | None) -> NDArray[np.int64]:
    """Return the input index that torch's ``nearest`` mode uses for each output along a side, shape (outputs,).

    A given scale factor takes precedence over the ratio of the sizes, unless the size stays the same or doubles.
    """
    scale = np.float32(inputs) / np.float32(outputs)
    if factor is not None and outputs not in (inputs, 2 * inputs):
        scale = np.float32(1 / factor)
    indices: NDArray[np.float32] = np.minimum(scale * np.arange(outputs, dtype=np.float32), inputs - 1)
    return indices.astype(np.int64)


def _max_pool(rank: int, node: torch.fx.Node, importer: Any) -> ir.Expr:
    """Convert a max pool; an empty stride means the kernel's size, which TVM's importer misreads."""
    pool, layout = (relax.op.nn.max_pool2d, "NCHW") if rank == 2 else (relax.op.nn.max_pool3d, "NCDHW")
    args, defaults = _arguments(node), [[], [0], [1], False]
    data_node, kernel, stride, padding, dilation, ceil = args + defaults[len(args) - 2 :]
    data, emit = importer.env[data_node], importer.block_builder.emit
    is_single = len(extents(data)) == rank + 1
    data = emit(relax.op.expand_dims(data, 0)) if is_single else data
    pooled = emit(pool(data, kernel, stride or kernel, padding, dilation, ceil, layout=layout))
    return emit(relax.op.squeeze(pooled, 0)) if is_single else pooled


def _normalize(method: str, node: torch.fx.Node, importer: Any) -> ir.Expr:
    """Convert a normalization that also returns its means and scales, which TVM's importer omits."""
    normal = getattr(importer, method)(node)
    if all(user.args[1] == 0 for user in node.users):
        return normal
    emit, shape, eps = importer.block_builder.emit, list(node.meta["val"][1].shape), _arguments(node)[-1]
    rows = emit(relax.op.reshape(importer.env[node.args[0]], [prod(shape), -1]))
    variance = emit(relax.op.add(emit(relax.op.variance(rows, -1)), relax.const(eps, "float32")))
    statistics = (emit(relax.op.mean(rows, -1)), emit(relax.op.rsqrt(variance)))
    return emit(relax.Tuple([normal, *(emit(relax.op.reshape(statistic, shape)) for statistic in statistics)]))


def _grid_sample(node: torch.fx.Node, importer: Any) -> ir.Expr:
    """Move the coordinates' axis before the image axes, where TVM expects it; its importer leaves it last."""
    image, grid, method, padding, align = _arguments(node)
    emit = importer.block_builder.emit
    coordinates = emit(relax.op.permute_dims(importer.env[grid], [0, 3, 1, 2]))
    return emit(
        relax.op.image.grid_sample(
            importer.env[image],
            coordinates,
            method=("bilinear", "nearest", "bicubic")[method],
            layout="NCHW",
            padding_mode=("zeros", "border", "reflection")[padding],
            align_corners=align,
        )
    )


def _index(node: torch.fx.Node, importer: Any) -> ir.Expr:
    """Convert indexing by broadcastable tensors to a single take along the flattened indexed axes.

    TVM's importer takes along one axis after the other, which is wrong for indices that share axes, and does not wrap
    negative indices.
    """
    (data_node, index_nodes), emit = _three_arguments(node)[:2], importer.block_builder.emit
    data, axes = importer.env[data_node], [axis for axis, index in enumerate(index_nodes) if index is not None]
    indices = [importer.env[index_nodes[axis]] for axis in axes]
    if any(str(index.ty.dtype) == "bool" for index in indices):
        raise ValueError(
            "index selects the elements where a mask is true, and their number is not known before the network runs; "
            "multiply by the mask, or use torch.where"
        )
    if axes[-1] - axes[0] >= len(axes):
        # There is an unindexed axis between the indexed ones: torch then puts the axes of the indices first.
        remaining = [axis for axis in range(len(extents(data))) if axis not in axes]
        data, axes = emit(relax.op.permute_dims(data, [*axes, *remaining])), list(range(len(axes)))
    shape = extents(data)
    offsets: ir.Expr | None = None
    for axis, index in zip(axes, indices, strict=True):
        index = emit(relax.op.astype(index, "int64"))
        size, zero = (relax.const(value, "int64") for value in (shape[axis], 0))
        index = emit(relax.op.where(emit(relax.op.less(index, zero)), emit(relax.op.add(index, size)), index))
        offsets = index if offsets is None else emit(relax.op.add(emit(relax.op.multiply(offsets, size)), index))
    merged_shape = [*shape[: axes[0]], prod(shape[axis] for axis in axes), *shape[axes[-1] + 1 :]]
    return emit(relax.op.take(emit(relax.op.reshape(data, merged_shape)), offsets, axes[0]))


def _index_put(node: torch.fx.Node, importer: Any) -> ir.Expr:
    """Reject calls that were not decomposed; TVM's importer would treat the mask as indices."""
    raise ValueError(
        "index_put writes a list of values where a mask is true, and the mask is not known before the network runs; "
        "use torch.where with a value for each element of the mask"
    )


def _permute(node: torch.fx.Node, importer: Any) -> ir.Expr:
    """Make negative axes positive, since TVM's layout conversion derives layout names from them."""
    data, axes = _arguments(node)
    return importer.block_builder.emit(relax.op.permute_dims(importer.env[data], [axis % len(axes) for axis in axes]))


def _scatter_add(node: torch.fx.Node, importer: Any) -> ir.Expr:
    data, axis, index, values = node.args
    operands = (importer.env[operand] for operand in (data, index, values))
    return importer.block_builder.emit(relax.op.scatter_elements(*operands, axis=axis, reduction="add"))


def _matmul(node: torch.fx.Node, importer: Any) -> ir.Expr:
    """Multiply in the operands' type; TVM's importer always returns float32."""
    left, right = (importer.env[operand] for operand in node.args)
    dtype = str(left.ty.dtype)
    return importer.block_builder.emit(relax.op.matmul(left, right, "float32" if dtype == "float32" else None))


def _shift_converter(is_right: bool) -> Callable[[torch.fx.Node, Any], ir.Expr]:
    operator = partial(shift, is_right=is_right)
    return lambda node, importer: importer._binary_op(operator, operator)(node)


_LSHIFTS = ("__lshift__.Scalar", "__lshift__.Tensor", "bitwise_left_shift.Tensor", "shift_left.default")
_RSHIFTS = ("__rshift__.Scalar", "__rshift__.Tensor", "bitwise_right_shift.Tensor", "shift_right_arithmetic.default")

_GATE_ORDER: Mapping[str, tuple[int, ...]] = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}
"""For each gate in ONNX's order, its index in torch's order."""

_SIGMOID, _TANH, _RELU = (Activation(name) for name in ("sigmoid", "tanh", "relu"))


def _recurrent_converter(cell: Cell, *activations: Activation) -> Callable[[Any, Any], tuple[relax.Expr, ...]]:
    """Return the converter of a recurrent operator with these activation functions."""
    return lambda node, importer: _Layers(cell, activations, node, importer).convert()


class _Layers:
    """The stacked layers of a recurrent call: the output of each is the input of the next."""

    def __init__(self, cell: Cell, activations: Sequence[Activation], node: Any, importer: Any) -> None:
        data, states, weights, has_biases, n_layers, _, _, is_bidirectional, batch_first = node.args
        env, self._builder, self._emit = importer.env, importer.block_builder, importer.block_builder.emit
        self._data = env[data]
        self._states = [env[state] for state in (states if cell == "lstm" else [states])]
        self._weights = [env[weight] for weight in weights]
        self._has_biases, self._n_layers = has_biases, n_layers
        rows = extents(self._data)[:2]
        self._spec = Recurrence(
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
        """Return the output of the last layer, and the final states of all layers."""
        data, last_states = self._data, []
        for layer in range(self._n_layers):
            y, *states = emit_recurrence(self._builder, self._spec, self._operands(layer, data))
            data = self._emit(relax.op.reshape(y, [*extents(data)[:2], self._spec.directions * self._spec.hidden]))
            last_states.append(states)
        return data, *(self._concatenate(states) for states in zip(*last_states, strict=True))

    def _operands(self, layer: int, data: ir.Expr) -> Operands:
        """Return the operands of a layer; the weights of its directions are consecutive."""
        n_directions = self._spec.directions
        n_weights = 4 if self._has_biases else 2
        start = layer * n_directions * n_weights
        directions = [self._weights[start + i * n_weights :][:n_weights] for i in range(n_directions)]
        weight, recurrent, *biases = (
            self._concatenate([self._emit(relax.op.expand_dims(self._reorder_gates(weight_), 0)) for weight_ in kind])
            for kind in zip(*directions, strict=True)
        )
        states = [self._state_of_layer(state, layer) for state in self._states]
        return Operands(
            data,
            weight,
            recurrent,
            bias=self._emit(relax.op.concat(biases, 1)) if biases else None,
            initial_h=states[0],
            initial_c=states[1] if self._spec.cell == "lstm" else None,
        )

    def _reorder_gates(self, weight: ir.Expr) -> ir.Expr:
        """Reorder the gates of a weight or a bias, whose first axis is (gates * hidden), as in ONNX."""
        shape, order = extents(weight), np.array(_GATE_ORDER[self._spec.cell])
        by_gate = relax.op.reshape(weight, [GATES[self._spec.cell], self._spec.hidden, *shape[1:]])
        return relax.op.reshape(relax.op.take(by_gate, relax.const(order), 0, mode="clip"), shape)

    def _state_of_layer(self, state: ir.Expr, layer: int) -> ir.Expr:
        if self._n_layers == 1:
            return state
        indices = np.arange(self._spec.directions) + layer * self._spec.directions
        return self._emit(relax.op.take(state, relax.const(indices), 0, mode="clip"))

    def _concatenate(self, values: Sequence[ir.Expr]) -> ir.Expr:
        return values[0] if len(values) == 1 else self._emit(relax.op.concat(list(values), 0))


def _scatter_reduce(node: torch.fx.Node, importer: Any) -> ir.Expr:
    data, axis, index, values, reduce = _arguments(node)
    operands = (importer.env[operand] for operand in (data, index, values))
    reduction = {"prod": "mul", "amin": "min", "amax": "max"}[reduce]
    return importer.block_builder.emit(relax.op.scatter_elements(*operands, axis=axis, reduction=reduction))


CONVERTERS: dict[str, Callable[[torch.fx.Node, Any], ir.Expr]] = {
    "amax.default": partial(_reduce, relax.op.max),
    "amin.default": partial(_reduce, relax.op.min),
    "grid_sampler_2d.default": _grid_sample,
    "index.Tensor": _index,
    "gru.input": _recurrent_converter("gru", _SIGMOID, _TANH),
    "index_put.default": _index_put,
    "lstm.input": _recurrent_converter("lstm", _SIGMOID, _TANH, _TANH),
    "rnn_relu.input": _recurrent_converter("rnn", _RELU),
    "rnn_tanh.input": _recurrent_converter("rnn", _TANH),
    "max_pool2d.default": partial(_max_pool, 2),
    "max_pool3d.default": partial(_max_pool, 3),
    "native_group_norm.default": partial(_normalize, "_native_group_norm"),
    "native_layer_norm.default": partial(_normalize, "_native_layer_norm"),
    "permute.default": _permute,
    **dict.fromkeys(_LSHIFTS, _shift_converter(is_right=False)),
    **dict.fromkeys(_RSHIFTS, _shift_converter(is_right=True)),
    **dict.fromkeys(("bmm.default", "matmul.default", "mm.default"), _matmul),
    "scatter_add.default": _scatter_add,
    "scatter_reduce.two": _scatter_reduce,
    "upsample_nearest2d.vec": _resize_nearest,
}
"""Converters by the operator's name in a `torch.fx` graph."""


@cache
def known_operators() -> frozenset[str]:
    """Return the names of the operators that have a converter."""
    return frozenset((*ExportedProgramImporter().convert_map, *CONVERTERS))


def unsupported_operators(program: torch.export.ExportedProgram) -> dict[str, str]:
    """Return the operators of a program that have no converter, and the layer in which each first occurs."""
    layers: dict[str, str] = {}
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target.__name__ not in known_operators():
            layers.setdefault(node.target.__name__, layer_of(node))
    return layers


def layer_of(node: torch.fx.Node) -> str:
    """Return the dotted name of the module that an operator of an exported program comes from."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return str(stack[-1][0]) if stack else ""
