"""Memory access analysis of a TensorIR block: the stride of every access along each axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from operator import mul

import tvm_ffi
from tvm import ir, s_tir, sym, tirx

from anole.ir.nodes import collect

_EXPENSIVE = frozenset("erf exp exp2 exp10 log log1p log2 log10 pow reinterpret rsqrt sigmoid sqrt tanh".split())


@dataclass(frozen=True)
class Axis:
    """One loop around a block.

    Attributes:
        reduction: whether iterations accumulate into the same elements.
        store: stride of the store, in elements; None if it is not constant.
        loads: stride of each load, in order of appearance, except a reduction's own result.
    """

    extent: int
    reduction: bool
    store: int | None
    loads: tuple[int | None, ...]

    @property
    def strides(self) -> tuple[int | None, ...]:
        """Strides of the store, then of the loads."""
        return (self.store, *self.loads)

    @property
    def contiguous_loads(self) -> bool:
        """Whether every load is contiguous or constant along the axis."""
        return all(stride in (0, 1) for stride in self.loads)

    def wraps(self, inner: Axis) -> bool:
        """Whether this axis and the next inner one access memory like a single longer axis."""
        if self.reduction != inner.reduction:
            return False
        pairs = zip(self.strides, inner.strides, strict=True)
        is_regular = all(o is not None and i is not None and o == i * inner.extent for o, i in pairs)
        return is_regular or self.extent == 1 or inner.extent == 1

    def merge(self, inner: Axis) -> Axis:
        """Merge this axis with the next inner one."""
        return replace(inner, extent=self.extent * inner.extent) if inner.extent > 1 else self


@dataclass(frozen=True)
class Block:
    """The properties of a single-store block that scheduling needs.

    Attributes:
        axes: one per loop, outermost first.
        lane_bytes: size of the widest accessed element.
        branches: whether the value depends on a condition, such as padding.
        expensive: whether the value contains a transcendental function.
    """

    axes: tuple[Axis, ...]
    lane_bytes: int
    branches: bool
    expensive: bool

    @property
    def work(self) -> int:
        """Number of executions of the body."""
        return prod(axis.extent for axis in self.axes)

    @property
    def reduces(self) -> bool:
        """Whether any axis is a reduction."""
        return any(axis.reduction for axis in self.axes)

    @property
    def results(self) -> int:
        """Number of stored elements."""
        return prod(axis.extent for axis in self.axes if not axis.reduction)

    def leading(self, size: int) -> int:
        """Return the number of outermost axes whose extents multiply to `size`; 0 if there is none."""
        sizes = accumulate((axis.extent for axis in self.axes), mul)
        return next((count for count, total in enumerate(sizes, 1) if total == size), 0)


def describe_block(block: s_tir.SBlock) -> Block | None:
    """Return a block's properties, or None if it is not a single store with constant extents."""
    extents = [iter_var.dom.extent for iter_var in block.iter_vars]
    kinds = {int(iter_var.iter_type) for iter_var in block.iter_vars}
    is_static = all(isinstance(extent, tirx.IntImm) for extent in extents)
    if not is_static or not kinds <= {tirx.IterVar.DataPar, tirx.IterVar.CommReduce}:
        return None
    if not isinstance(block.body, tirx.BufferStore) or not block.iter_vars:
        return None
    loads = [load for load in collect(block.body.value, ir.TensorLoad) if not load.source.same_as(block.body.buffer)]
    names = (call.op.name for call in collect(block.body.value, ir.Call) if isinstance(call.op, ir.Op))
    calls = {str(name).rpartition(".")[2] for name in names}
    strides = _Strides(block)
    store = strides.along_axes(block.body.buffer, block.body.indices)
    load_strides = [strides.along_axes(load.source, load.indices) for load in loads]
    axes = tuple(
        Axis(
            int(extent),
            iter_var.iter_type == tirx.IterVar.CommReduce,
            store[i],
            tuple(load[i] for load in load_strides),
        )
        for i, (iter_var, extent) in enumerate(zip(block.iter_vars, extents, strict=True))
    )
    buffers = [block.body.buffer, *(load.source for load in loads)]
    return Block(
        axes=axes,
        lane_bytes=max(1, *(int(tvm_ffi.dtype(str(buffer.ty.dtype)).bits) // 8 for buffer in buffers)),
        branches="if_then_else" in calls or bool(collect(block.body.value, tirx.Select)),
        expensive=bool(calls & _EXPENSIVE),
    )


def reads_elementwise(consumer: s_tir.SBlock, buffer: tirx.Buffer) -> bool:
    """Whether a block reads a buffer only at its own indices, which lets producer and consumer share loops."""
    own_indices = [iter_var.var for iter_var in consumer.iter_vars]
    loads = [load for load in collect(consumer.body, ir.TensorLoad) if load.source.same_as(buffer)]
    return bool(loads) and all(are_same(load.indices, own_indices) for load in loads)


def are_same(indices: Sequence[ir.Expr], variables: Sequence[tirx.Var]) -> bool:
    """Whether indices are these variables, in order."""
    return len(indices) == len(variables) and all(map(tirx.Var.same_as, variables, indices))


class _Strides:
    """Strides of accesses along the iteration variables of one block."""

    def __init__(self, block: s_tir.SBlock) -> None:
        self._vars = [iter_var.var for iter_var in block.iter_vars]
        self._analyzer = sym.Analyzer()
        for iter_var in block.iter_vars:
            self._analyzer.bind(iter_var.var, iter_var.dom)

    def along_axes(self, buffer: tirx.Buffer, indices: list[ir.Expr]) -> list[int | None]:
        flat = indices[0] if indices else tirx.const(0)
        for index, extent in zip(indices[1:], buffer.ty.shape[1:], strict=True):
            flat = flat * extent + index
        flat = self._analyzer.simplify(flat)
        # One by one: an index may be a table lookup along one axis and still be linear along all others.
        return [self._along(flat, variable) for variable in self._vars]

    def _along(self, flat: ir.Expr, variable: tirx.Var) -> int | None:
        equation = sym.detect_linear_equation(flat, [variable])
        coefficient = self._analyzer.simplify(equation[0]) if equation else None
        return int(coefficient) if isinstance(coefficient, tirx.IntImm) else None
