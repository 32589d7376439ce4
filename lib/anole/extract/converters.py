"""Converters for torch operators that TVM's importer lacks or gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tvm import ir, relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from anole.extract.passes.mutators import extents


def _three_arguments(node: torch.fx.Node) -> list[Any]:
    """Returns the three arguments of a call, with None for omitted ones."""
    return [*node.args, *[None] * (3 - len(node.args))]


def _extreme(operator: Callable[..., ir.Expr]) -> Callable[[torch.fx.Node, Any], ir.Expr]:
    """Returns the converter of a maximum or minimum along axes, or along all if none is named."""

    def convert(node: torch.fx.Node, importer: Any) -> ir.Expr:
        data, axes, keeps = _three_arguments(node)
        return importer.block_builder.emit(operator(importer.env[data], axes or None, keepdims=bool(keeps)))

    return convert


def _nearest(node: torch.fx.Node, importer: Any) -> ir.Expr:
    """Rounds the source position down as torch does; TVM's importer takes the nearest centre."""
    data, size, factors = _three_arguments(node)
    value, emit = importer.env[data], importer.block_builder.emit
    inputs = extents(value)[2:]
    factors = factors or [None] * len(inputs)
    outputs = size or [int(extent * factor) for extent, factor in zip(inputs, factors, strict=True)]
    sides = list(zip(inputs, outputs, factors, strict=True))
    if all((nearest_places(*side) == np.arange(side[1]) * side[0] // side[1]).all() for side in sides):
        resize = relax.op.image.resize2d
        return emit(resize(value, outputs, None, "NCHW", "nearest_neighbor", "asymmetric", "floor"))
    for axis, side in enumerate(sides, start=2):
        value = emit(relax.op.take(value, relax.const(nearest_places(*side)), axis))
    return value


def nearest_places(inputs: int, outputs: int, factor: float | None) -> NDArray[np.int64]:
    """Returns the input index that torch's ``nearest`` takes for each output along a side, shape (outputs,).

    A requested scale factor counts, even where it differs from the ratio of the sizes, unless the sizes are the same or
    double.
    """
    scale = np.float32(inputs) / np.float32(outputs)
    if factor is not None and outputs not in (inputs, 2 * inputs):
        scale = np.float32(1 / factor)
    places: NDArray[np.float32] = np.minimum(scale * np.arange(outputs, dtype=np.float32), inputs - 1)
    return places.astype(np.int64)


def _index(node: torch.fx.Node, importer: Any) -> ir.Expr:
    """Takes elements by several index tensors, which broadcast to each other, as one take of places in their axes.

    TVM's importer takes along one axis after the other, which is another result unless each index has axes of its own.
    """
    (whole, given), emit = _three_arguments(node)[:2], importer.block_builder.emit
    data, axes = importer.env[whole], [axis for axis, index in enumerate(given) if index is not None]
    indices = [importer.env[given[axis]] for axis in axes]
    if any(str(index.ty.dtype) == "bool" for index in indices):
        raise ValueError(
            "index takes the elements where a mask is true, and how many there are is not known before the network "
            "runs; multiply by the mask, or write torch.where"
        )
    if len(axes) < 2 or any("int" not in str(index.ty.dtype) for index in indices):
        return importer._index_tensor(node)
    if axes[-1] - axes[0] >= len(axes):
        # Between the indices lies an axis that is kept: torch then puts the indices' own axes first.
        kept = [axis for axis in range(len(extents(data))) if axis not in axes]
        data, axes = emit(relax.op.permute_dims(data, [*axes, *kept])), list(range(len(axes)))
    shape = extents(data)
    places: ir.Expr | None = None
    for axis, index in zip(axes, indices, strict=True):
        index = emit(relax.op.astype(index, "int64"))
        size, zero = (relax.const(number, "int64") for number in (shape[axis], 0))
        index = emit(relax.op.where(emit(relax.op.less(index, zero)), emit(relax.op.add(index, size)), index))
        places = index if places is None else emit(relax.op.add(emit(relax.op.multiply(places, size)), index))
    joined = [*shape[: axes[0]], prod(shape[axis] for axis in axes), *shape[axes[-1] + 1 :]]
    return emit(relax.op.take(emit(relax.op.reshape(data, joined)), places, axes[0]))


def _index_put(node: torch.fx.Node, importer: Any) -> ir.Expr:
    """Refuses what decomposing has left; TVM's importer would take the mask for indices."""
    raise ValueError(
        "index_put writes a list of values where a mask is true, and the mask is not known before the network runs; "
        "write torch.where with as many values as the mask has"
    )


def _scatter_add(node: torch.fx.Node, importer: Any) -> ir.Expr:
    data, axis, index, values = node.args
    operands = (importer.env[each] for each in (data, index, values))
    return importer.block_builder.emit(relax.op.scatter_elements(*operands, axis=axis, reduction="add"))


CONVERTERS: dict[str, Callable[[torch.fx.Node, Any], ir.Expr]] = {
    "amax.default": _extreme(relax.op.max),
    "amin.default": _extreme(relax.op.min),
    "index.Tensor": _index,
    "index_put.default": _index_put,
    "scatter_add.default": _scatter_add,
    "upsample_nearest2d.vec": _nearest,
}
"""Converters by the operator's name in a `torch.fx` graph."""


def without_converter(program: torch.export.ExportedProgram, converters: Collection[str]) -> dict[str, str]:
    """Returns the operators of a program that have no converter, and the layer in which each is used first.

    Args:
        program: the program.
        converters: the operators that have a converter beside those of TVM.
    """
    known = {*ExportedProgramImporter().convert_map, *converters}
    layers: dict[str, str] = {}
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target.__name__ not in known:
            layers.setdefault(node.target.__name__, layer_of(node))
    return layers


def layer_of(node: torch.fx.Node) -> str:
    """Returns the dotted name of the module that an operator of an exported program comes from."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return str(stack[-1][0]) if stack else ""
