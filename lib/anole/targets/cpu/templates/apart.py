"""Makes a block go through every so many rows and columns of its output at a time, as a dilated convolution does."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, s_tir, sym, tirx

from anole.targets.shared.nodes import collect, nest_around, with_bounds, with_each, with_values

_Axis = tuple[tirx.IterVar, tirx.IterVar]
"""The axis that counts rows or columns a dilation apart, and the one of the row or column at which it begins."""


def take_apart(func: tirx.PrimFunc, name: str, dilation: tuple[int, int]) -> tirx.PrimFunc:
    """Returns a function in which a block's loops (n, y, x, f) are (n, y first, x first, y, x, f).

    Row ``y first`` and those a multiple of the dilation further are an image of their own, whose rows are ``y``. TVM
    can simplify what reads and writes such rows only if both are axes of the block itself. The nest around the block
    must be perfect.
    """

    def rewrite(nest: tirx.For) -> tirx.Stmt:
        blocks = collect(nest, s_tir.SBlockRealize)
        is_meant = [each.block.name_hint for each in blocks] == [name] and len(collect(nest, tirx.For)) == 4
        return _nest(blocks[0], dilation) if is_meant else nest

    return with_each(func, tirx.For, rewrite)


def _nest(realize: s_tir.SBlockRealize, dilation: tuple[int, int]) -> tirx.Stmt:
    block = realize.block
    n, y, x, f = block.iter_vars
    (row, first_row), (column, first_column) = (_split(axis, step) for axis, step in zip((y, x), dilation, strict=True))
    iter_vars = [n, first_row, first_column, row, column, f]
    analyzer = sym.Analyzer()
    for each in iter_vars:
        analyzer.bind(each.var, each.dom)
    whole = {y.var: row.var * dilation[0] + first_row.var, x.var: column.var * dilation[1] + first_column.var}

    def index(node: Any) -> Any:
        return analyzer.simplify(with_values(node, whole))

    def load(each: Any) -> Any:
        return tirx.BufferLoad(each.source, [analyzer.simplify(place) for place in each.indices])

    store = block.body
    value = tvm_ffi.structural_map(with_values(store.value, whole), (ir.TensorLoad, load), order="post")
    body: tirx.Stmt = tirx.BufferStore(store.buffer, value, [index(place) for place in store.indices])
    inside = analyzer.simplify(tirx.all(*(whole[axis.var] < axis.dom.extent for axis in (y, x))))
    if not (isinstance(inside, tirx.IntImm) and inside.value):
        # As a predicate of the block, TVM would not find it to be affine.
        body = tirx.IfThenElse(inside, body, None)
    reads, writes = (with_bounds(regions, index) for regions in (block.reads, block.writes))
    return nest_around(s_tir.SBlock(iter_vars, reads, writes, block.name_hint, body))


def _split(axis: tirx.IterVar, step: int) -> _Axis:
    def part(suffix: str, extent: int) -> tirx.IterVar:
        variable = tirx.Var(axis.var.name + suffix, axis.var.ty.dtype)
        return tirx.IterVar(ir.Range(0, tirx.const(extent, axis.var.ty.dtype)), variable, axis.iter_type)

    return part("", -(-int(axis.dom.extent) // step)), part("_first", step)
