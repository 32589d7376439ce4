"""Pass that splits integer products in float32 by channels to keep partial sums exact, and adds these in int32.

A sum of integers is exact in float32, in any order of summation, if no partial sum exceeds 2**24. For 8-bit data and
constant weights the bound follows from the weights: the partial sums are bounded by the products of the data's minimum
and maximum with the positive and with the negative weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import repeat
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.errors import ExtractError
from anole.extract.passes.value_ranges import as_8bit_operand
from anole.ir.mutators import bindings, extents, operator_of, resolve, rewrite, value_of, with_attrs
from anole.ir.normalize_products import is_transposed_product, operands_of, transposed_product
from anole.ir.symbols import is_static, largest

Ranges = Sequence[tuple[int, int]]
"""The minimum and maximum of an operand, for each of its possible zero points."""

MAX_BYTE = 255
"""The maximum absolute value of an 8-bit integer minus its zero point."""

ANY_BYTE: Ranges = ((0, MAX_BYTE), (-MAX_BYTE, 0))
"""The ranges of 8-bit data minus the smallest and the largest zero point."""

_MAX_EXACT_INTEGER = 2**24
"""The largest n such that float32 represents all integers up to n."""

_Values = NDArray[Any]


def exact_parts(ranges: Ranges, weights: Iterable[_Values]) -> list[slice] | None:
    """Split channels into as few ranges as possible whose sums are exact in float32; return None if impossible.

    Args:
        ranges: the ranges of the data.
        weights: the weights of each channel, shape (taps, results).
    """
    return _parts(_bounds(ranges, weights))


def exact_ranges(inputs: int, weight: _Values | None) -> tuple[slice, ...]:
    """Split inputs of any 8-bit values into ranges whose sums are exact in float32.

    Args:
        inputs: the number of inputs.
        weight: shape (inputs, results); None stands for any 8-bit weights.
    """
    parts = uniform_parts(inputs, MAX_BYTE**2) if weight is None else exact_parts(ANY_BYTE, weight[:, None])
    assert parts is not None
    return tuple(parts)


def uniform_parts(inputs: int, bound: int) -> list[slice]:
    """Split inputs into ranges whose sums are exact if each product is at most `bound`."""
    parts = _parts(repeat(np.array([bound]), inputs))
    assert parts is not None
    return parts


def split_sums(module: tvm.IRModule) -> tvm.IRModule:
    """Split the integer products of a normalized module so their sums are exact in float32."""
    values = {binding.var: binding.value for binding in bindings(module["main"])}
    parts = {variable: slices for variable, value in values.items() if len(slices := _parts_of(value, values)) > 1}
    if not parts:
        return module

    class Splitter(_Splitter):
        slices_of = parts

    return rewrite(module, mutator(Splitter))


def _parts_of(call: ir.Expr, values: dict[relax.Var, ir.Expr]) -> list[slice]:
    """Return the channel ranges of an int32 product, or an empty list for all other expressions."""
    product = _product_of(call, values)
    if product is None or (operator_of(product) == "relax.nn.conv2d" and product.attrs.groups > 1):
        return []
    data, right = operands_of(product)
    if is_transposed_product(product) or (weight := value_of(right)) is None:
        inner = data.ty.shape[-1]
        parts = uniform_parts(largest(inner) or extents(data)[-1], _max_bound(data, values) * _max_bound(right, values))
        if len(parts) > 1 and not is_static(inner):
            raise ExtractError(
                f"found an integer product with sums of up to {parts[-1].stop} terms; with a dynamic size, at most "
                f"{parts[0].stop} terms are exact in float32; use fixed sizes, with a model for each"
            )
        return parts
    operand = as_8bit_operand(data, values)
    minimum = None if operand is None else operand.least - operand.zero
    ranges = ANY_BYTE if minimum is None else ((minimum, minimum + MAX_BYTE),)
    by_channel = np.moveaxis(weight.astype(np.int64), max(weight.ndim - 2, 0), 0)
    return exact_parts(ranges, by_channel.reshape(len(by_channel), -1, weight.shape[-1])) or []


def _product_of(call: ir.Expr, values: dict[relax.Var, ir.Expr]) -> ir.Call | None:
    """Return the float32 product of integers that a call returns as int32, or None for all other calls.

    A product with a transposed right operand is cast afterwards, since its own dtype cannot be int32.
    """
    if operator_of(call) in _CHANNELS:
        return call if [str(expr.ty.dtype) for expr in (*call.args, call)] == _EXACT_DTYPES else None
    if operator_of(call) != "relax.astype" or str(call.attrs.dtype) != "int32":
        return None
    product = values.get(call.args[0])
    return product if operator_of(product) == "relax.einsum" and is_transposed_product(product) else None


def _max_bound(operand: ir.Expr, values: dict[relax.Var, ir.Expr]) -> int:
    """Return the maximum absolute value of an 8-bit operand minus its zero point."""
    operand_ = as_8bit_operand(operand, values)
    if operand_ is None or operand_.computed is not None:
        return MAX_BYTE
    low = operand_.least - operand_.zero
    return max(-low, low + MAX_BYTE)


_CHANNELS = {"relax.nn.conv2d": 3, "relax.matmul": -1}
"""The channel axis of each product's data."""

_EXACT_DTYPES = ["float32", "float32", "int32"]


class _Splitter(PyExprMutator):  # type: ignore[misc]
    """The mutator; `slices_of` holds the channel ranges by product variable."""

    slices_of: dict[relax.Var, list[slice]]

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self._binding = binding.var
        super().visit_var_binding_(binding)

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.visit_expr_post_order(call)
        parts = self.slices_of.get(self._binding)
        if parts is None:
            return call
        product = call if operator_of(call) in _CHANNELS else resolve(self, call.args[0])
        data, weight = operands_of(product)
        axis, channels = _CHANNELS.get(operator_of(call), -1), max(len(weight.ty.shape) - 2, 0)

        def sum_part(part: slice) -> ir.Expr:
            left, right = self._slice(data, axis, part), self._slice(weight, channels, part)
            return self.builder_.emit(with_attrs(call, [left, right]))

        def sum_transposed_part(part: slice) -> ir.Expr:
            part_product = transposed_product(*(self._slice(operand, -1, part) for operand in (data, weight)))
            return self.builder_.emit(with_attrs(call, [self.builder_.emit(part_product)]))

        return reduce(relax.op.add, map(sum_part if product is call else sum_transposed_part, parts))

    def _slice(self, operand: ir.Expr, axis: int, part: slice) -> ir.Expr:
        if (value := value_of(operand)) is not None:
            return relax.const(np.take(value, np.arange(part.start, part.stop), axis))
        axis_ = axis % len(operand.ty.shape)
        return self.builder_.emit(relax.op.strided_slice(operand, [axis_], [part.start], [part.stop]))


def _bounds(ranges: Ranges, weights: Iterable[_Values]) -> Iterator[_Values]:
    """Yield bounds on the increase and the decrease of a sum by each channel, for each zero point.

    The bounds of a channel have shape (bounds, results).
    """
    ends = [(max(-low, 0), max(high, 0)) for low, high in ranges]
    for weight in weights:
        positive, negative = np.maximum(weight, 0).sum(0), np.maximum(-weight, 0).sum(0)
        ups = [up * positive + down * negative for down, up in ends]
        downs = [down * positive + up * negative for down, up in ends]
        yield np.stack(ups + downs)


def _parts(bounds: Iterable[_Values]) -> list[slice] | None:
    parts: list[slice] = []
    start, end, total = 0, 0, np.zeros((), np.int64)
    for channel, channel_bounds in enumerate(bounds):
        total, end = total + channel_bounds, channel + 1
        if total.max(initial=0) > _MAX_EXACT_INTEGER:
            if channel_bounds.max(initial=0) > _MAX_EXACT_INTEGER:
                return None
            parts.append(slice(start, channel))
            start, total = channel, channel_bounds
    return [*parts, slice(start, end)]
