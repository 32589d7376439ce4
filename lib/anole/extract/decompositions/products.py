"""Decompositions of matrix products and convolutions that TVM's importer does not support or gets wrong."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from operator import ge
from typing import Any

import torch

from anole.extract.decompositions.promotion import is_integral

_aten = torch.ops.aten


def _linear(data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
    if not is_integral(data):
        return NotImplemented
    return data @ weight.t() if bias is None else data @ weight.t() + bias


def _add_product(
    data: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> Any:
    """Add an integer product, scaled by integers as in torch; TVM's importer computes it in float."""
    return _weighted_sum(data, left @ right, beta, alpha) if is_integral(data) else NotImplemented


def _add_products(
    data: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    return _weighted_sum(data, (left @ right).sum(0), beta, alpha)


def _weighted_sum(data: torch.Tensor, product: torch.Tensor, beta: float, alpha: float) -> torch.Tensor:
    if is_integral(data):
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else data * beta + product


def _bilinear(left: torch.Tensor, right: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
    """Apply a linear layer to the left operand, then multiply by the right operand."""
    outputs, n_left, n_right = weight.shape
    projected = torch.nn.functional.linear(left, weight.transpose(1, 2).reshape(outputs * n_right, n_left))
    result = (projected.unflatten(-1, (outputs, n_right)) * right.unsqueeze(-2)).sum(-1)  # type: ignore[no-untyped-call]
    return result if bias is None else result + bias


def _convolve(
    data: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Any:
    if is_integral(data):
        if transposed:
            data, weight, padding = _as_direct(data, weight, stride, padding, dilation, output_padding, groups)
            stride = [1] * len(stride)
        result = _convolve_integers(data, weight, stride, padding, dilation, groups)
    elif transposed and (data.dim() == 5 or any(map(ge, output_padding, stride))):
        full = _conv_uncropped(data, weight, stride, dilation, groups)
        sides = zip(reversed(padding), reversed(output_padding), strict=True)
        result = torch.constant_pad_nd(full, [extent for pad, extra in sides for extent in (-pad, extra - pad)])
    else:
        return NotImplemented
    return result if bias is None else result + bias.reshape(-1, *[1] * (data.dim() - 2))


def _conv_uncropped(
    data: torch.Tensor, weight: torch.Tensor, stride: list[int], dilation: list[int], groups: int
) -> torch.Tensor:
    """Return a transposed convolution before its padding is cropped.

    In 3-D, a 2-D convolution applies all depth taps to each slice; the results are then added up at their depths.
    """
    rank = len(stride)
    if rank < 3:
        result: torch.Tensor = _aten.convolution(
            data, weight, None, stride, [0] * rank, dilation, True, [0] * rank, groups
        )
        return result
    batch, channels, depth, *sides = data.shape
    taps = weight.shape[2]
    slices = data.transpose(1, 2).reshape(batch * depth, channels, *sides)
    result = _conv_uncropped(slices, weight.reshape(channels, -1, *weight.shape[3:]), stride[1:], dilation[1:], groups)
    result = result.reshape(batch, depth, -1, taps, *result.shape[2:]).permute(0, 2, 3, 1, 4, 5)
    dilated = _insert_zeros(result, 3, stride[0])
    length = (depth - 1) * stride[0] + (taps - 1) * dilation[0] + 1
    total = result.new_zeros(())
    for tap in range(taps):
        start = tap * dilation[0]
        cropped = dilated[:, :, tap, : length - start]
        total = total + torch.constant_pad_nd(cropped, [0, 0, 0, 0, start, length - start - cropped.shape[2]])
    return total


def _insert_zeros(data: torch.Tensor, axis: int, step: int) -> torch.Tensor:
    """Insert step - 1 zeros after each element along an axis."""
    sides = [0, 0] * (data.dim() - 1 - axis) + [0, step - 1]
    return torch.constant_pad_nd(data.unsqueeze(axis + 1), sides).flatten(axis, axis + 1)


def _as_direct(
    data: torch.Tensor,
    weight: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    output_padding: list[int],
    groups: int,
) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Return the data, weight and padding of a direct convolution that is equivalent to a transposed one."""
    axes = range(2, data.dim())
    for axis, step in zip(axes, stride, strict=True):
        data = _insert_zeros(data, axis, step).narrow(axis, 0, (data.shape[axis] - 1) * step + 1)
    data = torch.constant_pad_nd(data, [pad for extra in reversed(output_padding) for pad in (0, extra)])
    spans = [(taps - 1) * gap for taps, gap in zip(weight.shape[2:], dilation, strict=True)]
    weight = weight.flip(list(axes)).unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)  # type: ignore[no-untyped-call]
    return data, weight, [span - pad for span, pad in zip(spans, padding, strict=True)]


def _convolve_integers(
    data: torch.Tensor, weight: torch.Tensor, stride: list[int], padding: list[int], dilation: list[int], groups: int
) -> torch.Tensor:
    """Convolve integers by multiplying patches (im2col); TVM's importer computes in float32."""
    data = torch.constant_pad_nd(data, [pad for pad in reversed(padding) for _ in range(2)])
    rank, outputs = len(stride), []
    for dimension, (taps, step, gap) in enumerate(zip(weight.shape[2:], stride, dilation, strict=True)):
        axis = 2 + 2 * dimension
        outputs.append((data.shape[axis] - (taps - 1) * gap - 1) // step + 1)
        window = torch.arange(outputs[-1]).unsqueeze(1) * step + torch.arange(taps) * gap
        data = data.index_select(axis, window.reshape(-1)).unflatten(axis, window.shape)  # type: ignore[no-untyped-call]
    data = data.unflatten(1, (groups, -1))  # type: ignore[no-untyped-call]
    order = [0, 1, *range(3, 3 + 2 * rank, 2), 2, *range(4, 4 + 2 * rank, 2)]
    patches = data.permute(order).reshape(len(data), groups, prod(outputs), -1)
    result = patches @ weight.reshape(groups, weight.shape[0] // groups, -1).transpose(1, 2)
    return result.transpose(2, 3).reshape(len(data), weight.shape[0], *outputs)


PRODUCTS: dict[Any, Callable[..., Any]] = {
    _aten.linear.default: _linear,
    _aten.addmm.default: _add_product,
    _aten.baddbmm.default: _add_product,
    _aten.addbmm.default: _add_products,
    _aten.bilinear.default: _bilinear,
    _aten.convolution.default: _convolve,
}
