"""Inserts prefetches of data that a loop reads later."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

from tvm import ir, s_tir, tirx

from anole.targets.cpu.device.vector_unit import FLOAT_BYTES
from anole.targets.cpu.templates.register_tiles import CACHE_LINE_BYTES
from anole.targets.shared.nodes import collect, with_loop, with_values

# Arguments of LLVM's intrinsic: for reading, into the second-level cache, data.
_READ, _SECOND_LEVEL, _DATA = 0, 2, 1


def first_read(loop: tirx.For, dimensions: int) -> tirx.BufferLoad:
    """Returns the first load, in each iteration, of a loop's only block from its buffer of this many dimensions."""
    (realize,) = collect(loop.body, s_tir.SBlockRealize)
    begun = {each.loop_var: tirx.IntImm(each.loop_var.ty.dtype, 0) for each in collect(loop.body, tirx.For)}
    load = next(load for load in collect(realize.block.body, ir.TensorLoad) if len(load.indices) == dimensions)
    bound = {own.var: value for own, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    return tirx.BufferLoad(load.source, [with_values(with_values(index, bound), begun) for index in load.indices])


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
        return tirx.For(each.loop_var, each.min, each.extent, each.kind, tirx.SeqStmt([wanted, each.body]))

    return with_loop(func, loop, begin)


def prefetch_lines(first: tirx.BufferLoad, count: int) -> tirx.Stmt:
    """Returns a statement that prefetches consecutive cache lines from an element on."""
    line = tirx.Var("line", "int32")
    elements = CACHE_LINE_BYTES // FLOAT_BYTES
    *outer, last = first.indices
    address = tirx.address_of(tirx.BufferLoad(first.source, [*outer, last + line * elements]))
    call = tirx.call_intrin("void", "tirx.prefetch", address, _READ, _SECOND_LEVEL, _DATA)
    return tirx.For(line, 0, count, tirx.ForKind.SERIAL, tirx.Evaluate(call))
