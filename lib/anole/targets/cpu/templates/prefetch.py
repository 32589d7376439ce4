"""Inserts prefetches of data that a loop reads later."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx

from anole.targets.cpu.default.access import collect
from anole.targets.cpu.device.vector_unit import FLOAT_BYTES
from anole.targets.cpu.templates.conv2d_space import CACHE_LINE_BYTES

# Arguments of LLVM's intrinsic: for reading, into the second-level cache, data.
_READ, _SECOND_LEVEL, _DATA = 0, 2, 1


def first_read(loop: tirx.For, dimensions: int) -> tirx.BufferLoad:
    """Returns the first load, in each iteration, of a loop's only block from its buffer of this many dimensions."""
    (realize,) = collect(loop.body, s_tir.SBlockRealize)
    inner = [each.loop_var for each in collect(loop.body, tirx.For)]
    load = next(load for load in collect(realize.block.body, ir.TensorLoad) if len(load.indices) == dimensions)
    variables = [iter_var.var for iter_var in realize.block.iter_vars]

    def bound(variable: tirx.Var) -> Any:
        values = (value for own, value in zip(variables, realize.iter_values, strict=True) if own.same_as(variable))
        return next(values, variable)

    def begun(variable: tirx.Var) -> Any:
        return tirx.IntImm(variable.ty.dtype, 0) if any(variable.same_as(each) for each in inner) else variable

    places = [tvm_ffi.structural_map(index, (tirx.Var, bound)) for index in load.indices]
    return tirx.BufferLoad(load.source, [tvm_ffi.structural_map(place, (tirx.Var, begun)) for place in places])


def prefetch_next(func: tirx.PrimFunc, loops: Sequence[tirx.For], dimensions: int) -> tirx.PrimFunc:
    """Returns a function that prefetches the next panel of a buffer while it reads one, a share in each iteration.

    Args:
        func: the function.
        loops: the nest in which it reads one panel, outermost first; the last loop contains only one block.
        dimensions: number of dimensions of the buffer; the first counts panels.
    """
    first = first_read(loops[-1], dimensions)
    panel, *within = first.indices
    shape = [int(extent) for extent in first.source.shape]
    lines = -(-prod(shape[1:]) * FLOAT_BYTES // CACHE_LINE_BYTES)
    iterations = prod(int(loop.extent) for loop in loops)
    number = reduce(lambda outer, loop: outer * loop.extent + loop.loop_var, loops, tirx.IntImm("int64", 0))
    begin = number * lines // iterations * (CACHE_LINE_BYTES // FLOAT_BYTES)
    zeros = [tirx.IntImm("int64", 0)] * (len(within) - 1)
    wanted = tirx.BufferLoad(first.source, [panel + 1, *zeros, begin])
    return prefetch_at(func, loops[-1], prefetch_lines(wanted, -(-lines // iterations)))


def prefetch_at(func: tirx.PrimFunc, loop: tirx.For, wanted: tirx.Stmt) -> tirx.PrimFunc:
    """Returns a function in which each iteration of the given loop begins with the statement `wanted`."""

    def begin(each: tirx.For) -> tirx.For:
        if not each.loop_var.same_as(loop.loop_var):
            return each
        return tirx.For(each.loop_var, each.min, each.extent, each.kind, tirx.SeqStmt([wanted, each.body]))

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, begin), order="post"))


def prefetch_lines(first: tirx.BufferLoad, count: int) -> tirx.Stmt:
    """Returns a statement that prefetches consecutive cache lines from an element on."""
    line = tirx.Var("line", "int32")
    elements = CACHE_LINE_BYTES // FLOAT_BYTES
    *outer, last = first.indices
    address = tirx.address_of(tirx.BufferLoad(first.source, [*outer, last + line * elements]))
    call = tirx.call_intrin("void", "tirx.prefetch", address, _READ, _SECOND_LEVEL, _DATA)
    return tirx.For(line, 0, count, tirx.ForKind.SERIAL, tirx.Evaluate(call))
