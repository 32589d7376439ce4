"""Products of small whole numbers in float32, whose sums are exact, so that they have the templates of other products.

Every whole number up to 2**24 is a number in float32. A sum of products is exact, in whatever order it is computed, if
no sum of a part of them exceeds that. For 8-bit data and constant weights the bound follows from the weights: a part of
the sum lies between the products of the data's extremes with the positive and with the negative weights. Where the sum
of all channels may be larger, it is split into sums of some channels, which are added in int32.

Such a product has float32 operands and a result of type int32. This keeps passes from merging scales into its weights,
and tells that it must be computed as it is, see `anole.task.Conv2d.exact`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from anole.extract.onnx.operators.call import Call, along, const, dtype_of, shape_of
from anole.extract.onnx.operators.convolution import Window, convolve, groups_of
from anole.extract.passes.mutators import bound, bound_call, operator_of

_LARGEST = 2**24
"""All whole numbers up to this are exact in float32."""

_MOST_BYTE = 255
"""The greatest absolute value of 8 bits less their zero point."""

_ANY_BYTE = ((0, _MOST_BYTE), (-_MOST_BYTE, 0))
"""The ranges of 8 bits less the least and the greatest zero point."""

_Values = NDArray[Any]
_Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Factor:
    """An operand of 8 bits less its zero points.

    Attributes:
        numbers: the whole numbers, in float32.
        ranges: the least and greatest of them, for the least and for the greatest zero point.
        values: the numbers where they are constant.
    """

    numbers: relax.Expr
    ranges: _Ranges
    values: _Values | None

    @property
    def most(self) -> int:
        """The greatest absolute value."""
        return max(max(-low, high) for low, high in self.ranges)


def factor(call: Call, index: int, zero_index: int, axis: int) -> Factor:
    """Returns an input less its zero points.

    The zero points, another input, are one number, or one for each index along an axis.
    """
    data, (values, zeros) = call.input(index), (call.constant(each) for each in (index, zero_index))
    has_zero = call.has(zero_index)
    shape = _zero_shape(call, index, zero_index, axis) if has_zero else ()
    if values is not None and (zeros is not None or not has_zero):
        centred = values.astype(np.int32) - (0 if zeros is None else zeros.astype(np.int32).reshape(shape))
        return Factor(const(centred, "float32"), ((int(centred.min()), int(centred.max())),), centred)
    info = np.iinfo(dtype_of(data))
    if not has_zero:
        ends: tuple[int, ...] = (0,)
    elif zeros is not None:
        ends = (int(zeros.min()), int(zeros.max()))
    else:
        ends = (int(info.min), int(info.max))
    numbers = whole_float(call, data)
    if has_zero and ends != (0, 0):
        zero = relax.op.reshape(whole_float(call, call.input(zero_index)), shape)
        numbers = call.emit(relax.op.subtract(numbers, zero))
    return Factor(numbers, tuple((int(info.min) - end, int(info.max) - end) for end in ends), None)


def whole_float(call: Call, value: relax.Expr) -> relax.Expr:
    """Returns whole numbers in float32; what was rounded in that type and then converted is taken as it was rounded."""
    made = bound_call(call.builder, value, "relax.astype")
    if made is not None and dtype_of(made.args[0]) == "float32" and _is_rounded(call, made.args[0]):
        return made.args[0]
    return call.cast(value, "float32")


def _is_rounded(call: Call, value: relax.Expr) -> bool:
    """Returns whether an expression is whole in any case, and clipped at most to whole numbers."""
    made: Any = bound(call.builder, value)
    operator = operator_of(made)
    if operator == "relax.add":
        return all(_is_rounded(call, operand) for operand in made.args)
    if operator == "relax.clip":
        data, *bounds = made.args
        return _is_rounded(call, data) and all(float(bound.value).is_integer() for bound in bounds)
    return operator == "relax.round" or (operator == "relax.astype" and "int" in dtype_of(made.args[0]))


def _zero_shape(call: Call, index: int, zero_index: int, axis: int) -> list[int]:
    """Returns the shape in which an input's zero points broadcast to it."""
    own, shape = call.shape(zero_index), call.shape(index)
    if own in ((), (1,)):
        return []
    if len(own) != 1:
        raise call.refuse(f"found zero points of shape {list(own)} for data of shape {list(shape)}")
    if own[0] != shape[axis]:
        raise call.refuse(f"found {own[0]} zero points for {shape[axis]} indices")
    return along(axis, len(shape), own[0])


def convolve_whole(call: Call, data: Factor, weight: Factor) -> relax.Expr:
    """Returns the convolution of an operator with the attributes of Conv, of type int32."""
    values, groups = weight.values, groups_of(call, shape_of(data.numbers), shape_of(weight.numbers))
    rank = len(shape_of(data.numbers)) - 2
    parts = None
    if values is not None and rank in _CONVOLUTIONS:
        outputs, channels = values.shape[:2]
        parts = _parts(_bounds(data.ranges, values.reshape(outputs, channels, -1).transpose(1, 2, 0)))
    if values is None or parts is None or (groups > 1 and len(parts) > 1):
        return convolve(call, *(call.cast(each.numbers, "int32") for each in (data, weight)))
    window = Window.of(call, values.shape[2:], shape_of(data.numbers)[2:])

    def one(part: slice) -> relax.Expr:
        return _CONVOLUTIONS[rank](
            _sliced(call, data.numbers, 1, part) if len(parts) > 1 else data.numbers,
            const(values[:, part], "float32"),
            strides=window.strides,
            padding=(*window.before, *window.after),
            dilation=window.dilations,
            groups=groups,
            out_dtype="int32",
        )

    return _total(call, [one(part) for part in parts])


_CONVOLUTIONS: dict[int, Any] = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
"""By the number of the image's axes."""


def multiply_whole(call: Call, left: Factor, right: Factor) -> relax.Expr:
    """Returns the matrix product of two operands, of type int32."""
    inner = shape_of(left.numbers)[-1]
    if right.values is not None:
        axis = max(right.values.ndim - 2, 0)
        bounds = _bounds(left.ranges, np.moveaxis(right.values, axis, 0).reshape(inner, 1, -1))
    else:
        bounds = _uniform(inner, left.most * right.most)
    parts = _parts(bounds)
    assert parts is not None
    if len(parts) == 1:
        return call.emit(relax.op.matmul(left.numbers, right.numbers, out_dtype="int32"))

    def one(part: slice) -> relax.Expr:
        rows = -2 if len(shape_of(right.numbers)) > 1 else -1
        operands = _sliced(call, left.numbers, -1, part), _sliced(call, right.numbers, rows, part)
        return relax.op.matmul(*operands, out_dtype="int32")

    return _total(call, [one(part) for part in parts])


def exact_runs(inputs: int, weight: _Values | None) -> tuple[slice, ...]:
    """Returns runs of inputs of any 8 bits whose products with weights have sums that are exact in float32.

    Args:
        inputs: the number of inputs.
        weight: shape (inputs, results); any of 8 bits if None.
    """
    bounds = _uniform(inputs, _MOST_BYTE**2) if weight is None else _bounds(_ANY_BYTE, weight[:, None])
    parts = _parts(bounds)
    assert parts is not None
    return tuple(parts)


def _uniform(inputs: int, bound: int) -> Iterator[_Values]:
    """Yields the bound of products with any weights."""
    return repeat(np.array([bound]), inputs)


def _bounds(ranges: _Ranges, weights: Iterable[_Values]) -> Iterator[_Values]:
    """Yields how far the products with each channel's weights may take a sum up or down, for each zero point.

    The weights of each channel have the shape (taps, results), and its bounds the shape (bounds, results).
    """
    ends = [(max(-low, 0), max(high, 0)) for low, high in ranges]
    for weight in weights:
        positive, negative = np.maximum(weight, 0).sum(0), np.maximum(-weight, 0).sum(0)
        ups = [up * positive + down * negative for down, up in ends]
        downs = [down * positive + up * negative for down, up in ends]
        yield np.stack(ups + downs)


def _parts(bounds: Iterable[_Values]) -> list[slice] | None:
    """Returns the fewest runs of channels of which no sum exceeds float32's exact numbers; None if a channel does."""
    found: list[slice] = []
    first, last, total = 0, 0, np.zeros((), np.int64)
    for channel, own in enumerate(bounds):
        total, last = total + own, channel + 1
        if total.max(initial=0) > _LARGEST:
            if own.max(initial=0) > _LARGEST:
                return None
            found.append(slice(first, channel))
            first, total = channel, own
    return [*found, slice(first, last)]


def _sliced(call: Call, data: relax.Expr, axis: int, part: slice) -> relax.Expr:
    axis %= len(shape_of(data))
    return call.emit(relax.op.strided_slice(data, [axis], [part.start], [part.stop]))


def _total(call: Call, products: Sequence[relax.Expr]) -> relax.Expr:
    return call.emit(reduce(relax.op.add, [call.emit(product) for product in products]))
