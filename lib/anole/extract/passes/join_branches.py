"""Pass that merges the sum of several convolutions of the same data into one convolution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.convolutions import CHANNELS_LAST, Window, is_channels_last, window_attributes, windows_of
from anole.ir.mutators import extents, operator_of, read_counts, resolve_if_read_once, rewrite, value_of

_Values = NDArray[np.float64]

_NO_SHIFT = np.zeros(1)


@dataclass(frozen=True)
class _Branch:
    """An NHWC convolution plus a constant.

    Attributes:
        weight: shape (rows, columns, channels of a group, results), or the channels' scales if there are no windows.
        windows: along rows and columns; empty for data that is only scaled.
        strides: along rows and columns.
        shift: the added constant; broadcasts to the result.
    """

    data: ir.Expr
    weight: _Values
    windows: tuple[Window, ...]
    strides: tuple[int, int]
    groups: int
    shift: _Values

    def join(self, other: _Branch) -> _Branch | None:
        """Merge two branches; return None if they are incompatible, or if the result requires more computation."""
        if self.windows and other.windows:
            areas = [branch.weight.shape[0] * branch.weight.shape[1] for branch in (self, other)]
            return _sum(self, other, max_taps=sum(areas))
        scaled, convolved = (self, other) if other.windows else (other, self)
        if not convolved.windows or (one_tap := scaled.with_tap(convolved)) is None:
            return None
        return _sum(convolved, one_tap, max_taps=convolved.weight.shape[0] * convolved.weight.shape[1])

    def with_tap(self, other: _Branch) -> _Branch | None:
        """Turn scaled data into a 1x1 convolution with as many groups as `other`; return None if impossible."""
        _, _, channels, results = other.weight.shape
        if results != channels * other.groups:
            return None
        weight = np.zeros((1, 1, channels, results))
        index = np.arange(results)
        weight[0, 0, index % channels, index] = self.weight
        return _Branch(self.data, weight, (Window(0, 1, 1, 0),) * 2, (1, 1), other.groups, self.shift)


def _sum(left: _Branch, right: _Branch, max_taps: int) -> _Branch | None:
    """Return the sum of two convolutions, or None if it has more than `max_taps` taps or they are incompatible."""
    if not left.data.same_as(right.data) or (left.strides, left.groups) != (right.strides, right.groups):
        return None
    rows, columns = (a.union(b) for a, b in zip(left.windows, right.windows, strict=True))
    if rows is None or columns is None or rows.n_taps * columns.n_taps > max_taps:
        return None
    weight = np.zeros((rows.n_taps, columns.n_taps, *left.weight.shape[2:]))
    for branch in (left, right):
        row, column = (union.index_of(window) for window, union in zip(branch.windows, (rows, columns), strict=True))
        taps = branch.weight.shape
        weight[row : row + taps[0], column : column + taps[1]] += branch.weight
    return _Branch(left.data, weight, (rows, columns), left.strides, left.groups, left.shift + right.shift)


def join_branches(module: tvm.IRModule) -> tvm.IRModule:
    """Merge sums of convolutions of the same data in an NHWC module.

    Kernel sizes may differ. Data that is added directly, or scaled per channel, counts as a convolution with one tap.
    Branches are merged only if that does not increase the computation, and if nothing else reads their results. This is
    for networks with parallel training branches (RepVGG, https://arxiv.org/abs/2101.03697, Section 3.3; MobileOne).
    """
    return rewrite(module, _Joiner)


@mutator
class _Joiner(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._uses = read_counts(module)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        super().visit_var_binding_(binding)
        self._uses[self.visit_expr(binding.var)] = self._uses[binding.var]

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        if operator_of(call) != "relax.add" or str(call.ty.dtype) != "float32" or len(extents(call)) != 4:
            return call
        if any(value_of(operand) is not None or extents(operand) != extents(call) for operand in call.args):
            return call
        pairs = product(*(self._branches(operand) for operand in call.args))
        merged = next((branch for branch_a, branch_b in pairs if (branch := branch_a.join(branch_b)) is not None), None)
        return call if merged is None else self._as_convolution(merged)

    def _branches(self, operand: ir.Expr) -> Iterator[_Branch]:
        """Yield the interpretations of an operand: its operator, if nothing else reads the result, and plain data."""
        value, shift, call = operand, _NO_SHIFT, resolve_if_read_once(self, self._uses, operand)
        if operator_of(call) == "relax.add" and (constant := _constant_of(call)) is not None:
            value, shift = call.args[0], constant
            call = resolve_if_read_once(self, self._uses, value)
        scale = _constant_of(call) if operator_of(call) == "relax.multiply" else None
        convolution = _convolution(call, shift) if operator_of(call) == "relax.nn.conv2d" else None
        if convolution is not None:
            yield replace(convolution, data=self._first_variable(convolution.data))
        elif scale is not None:
            yield _Branch(self._first_variable(call.args[0]), scale, (), (1, 1), 1, shift)
        else:
            yield _Branch(self._first_variable(value), np.ones(1), (), (1, 1), 1, shift)
        yield _Branch(self._first_variable(operand), np.ones(1), (), (1, 1), 1, _NO_SHIFT)

    def _first_variable(self, data: ir.Expr) -> ir.Expr:
        """Return the first variable that is bound to the data."""
        while isinstance(data, relax.Var) and isinstance(source := self.lookup_binding(data), relax.Var):
            data = source
        return data

    def _as_convolution(self, branch: _Branch) -> ir.Expr:
        weight = relax.const(branch.weight.astype(np.float32))
        settings = {
            "strides": branch.strides,
            "groups": branch.groups,
            **window_attributes(branch.windows),
            **CHANNELS_LAST,
        }
        result = relax.op.nn.conv2d(branch.data, weight, **settings)
        if not branch.shift.any():
            return result
        return relax.op.add(result, relax.const(branch.shift.astype(np.float32)))


def _constant_of(call: ir.Call) -> _Values | None:
    """Return the constant right operand of a sum or product, if it is a scalar or has one value per channel."""
    value = value_of(call.args[1])
    channels = extents(call)[-1]
    if value is None or extents(call.args[0]) != extents(call) or value.size not in (1, channels):
        return None
    return value.astype(np.float64).ravel() if value.size == 1 or value.shape[-1] == channels else None


def _convolution(call: ir.Call, shift: _Values) -> _Branch | None:
    """Return a convolution with constant weights as a branch, or None for computed weights or other layouts."""
    attrs, weight = call.attrs, value_of(call.args[1])
    if weight is None or not is_channels_last(call):
        return None
    windows, strides = windows_of(call, weight), (int(attrs.strides[0]), int(attrs.strides[1]))
    return _Branch(call.args[0], weight.astype(np.float64), windows, strides, int(attrs.groups), shift)
