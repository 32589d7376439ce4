"""Products of matrices and convolutions, in other words where TVM's importer lacks an operator or gets it wrong."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from operator import ge
from typing import Any

import torch

from anole.extract.decompositions.promotion import is_exact

_aten = torch.ops.aten


def _linear(data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
    if not is_exact(data):
        return NotImplemented
    return data @ weight.t() if bias is None else data @ weight.t() + bias


def _add_product(
    data: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> Any:
    """Add a product of integers, of which torch takes integer multiples, and TVM's importer floats."""
    return _sum_of(data, left @ right, beta, alpha) if is_exact(data) else NotImplemented


def _add_products(
    data: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    return _sum_of(data, (left @ right).sum(0), beta, alpha)


def _sum_of(data: torch.Tensor, product: torch.Tensor, beta: float, alpha: float) -> torch.Tensor:
    if is_exact(data):
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else data * beta + product


def _bilinear(left: torch.Tensor, right: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
    """Compute a linear layer of one operand, and then the products with the other."""
    outputs, n_left, n_right = weight.shape
    by_left = torch.nn.functional.linear(left, weight.transpose(1, 2).reshape(outputs * n_right, n_left))
    found = (by_left.unflatten(-1, (outputs, n_right)) * right.unsqueeze(-2)).sum(-1)  # type: ignore[no-untyped-call]
    return found if bias is None else found + bias


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
    if is_exact(data):
        if transposed:
            data, weight, padding = _over_zeros(data, weight, stride, padding, dilation, output_padding, groups)
            stride = [1] * len(stride)
        found = _convolve_integers(data, weight, stride, padding, dilation, groups)
    elif transposed and (data.dim() == 5 or any(map(ge, output_padding, stride))):
        whole = _transposed(data, weight, stride, dilation, groups)
        sides = zip(reversed(padding), reversed(output_padding), strict=True)
        found = torch.constant_pad_nd(whole, [extent for pad, more in sides for extent in (-pad, more - pad)])
    else:
        return NotImplemented
    return found if bias is None else found + bias.reshape(-1, *[1] * (data.dim() - 2))


def _transposed(
    data: torch.Tensor, weight: torch.Tensor, stride: list[int], dilation: list[int], groups: int
) -> torch.Tensor:
    """Return the whole of a transposed convolution, before its padding is cut off.

    It convolves the slices of a volume with all taps of the depth at once, and adds these up where they belong.
    """
    rank = len(stride)
    if rank < 3:
        made: torch.Tensor = _aten.convolution(
            data, weight, None, stride, [0] * rank, dilation, True, [0] * rank, groups
        )
        return made
    batch, channels, depth, *sides = data.shape
    taps = weight.shape[2]
    slices = data.transpose(1, 2).reshape(batch * depth, channels, *sides)
    made = _transposed(slices, weight.reshape(channels, -1, *weight.shape[3:]), stride[1:], dilation[1:], groups)
    made = made.reshape(batch, depth, -1, taps, *made.shape[2:]).permute(0, 2, 3, 1, 4, 5)
    apart = _spread(made, 3, stride[0])
    length = (depth - 1) * stride[0] + (taps - 1) * dilation[0] + 1
    total = made.new_zeros(())
    for tap in range(taps):
        first = tap * dilation[0]
        cut = apart[:, :, tap, : length - first]
        total = total + torch.constant_pad_nd(cut, [0, 0, 0, 0, first, length - first - cut.shape[2]])
    return total


def _spread(data: torch.Tensor, axis: int, step: int) -> torch.Tensor:
    """Put zeros behind each element along an axis."""
    sides = [0, 0] * (data.dim() - 1 - axis) + [0, step - 1]
    return torch.constant_pad_nd(data.unsqueeze(axis + 1), sides).flatten(axis, axis + 1)


def _over_zeros(
    data: torch.Tensor,
    weight: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    output_padding: list[int],
    groups: int,
) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Return the data, weight and padding of a convolution that computes a transposed one."""
    axes = range(2, data.dim())
    for axis, step in zip(axes, stride, strict=True):
        data = _spread(data, axis, step).narrow(axis, 0, (data.shape[axis] - 1) * step + 1)
    data = torch.constant_pad_nd(data, [each for more in reversed(output_padding) for each in (0, more)])
    reach = [(taps - 1) * gap for taps, gap in zip(weight.shape[2:], dilation, strict=True)]
    weight = weight.flip(list(axes)).unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)  # type: ignore[no-untyped-call]
    return data, weight, [far - pad for far, pad in zip(reach, padding, strict=True)]


def _convolve_integers(
    data: torch.Tensor,
    weight: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> torch.Tensor:
    """Multiply the patches under the taps, where TVM's importer computes in float32."""
    data = torch.constant_pad_nd(data, [pad for pad in reversed(padding) for _ in range(2)])
    rank, outputs = len(stride), []
    for place, (taps, step, gap) in enumerate(zip(weight.shape[2:], stride, dilation, strict=True)):
        axis = 2 + 2 * place
        outputs.append((data.shape[axis] - (taps - 1) * gap - 1) // step + 1)
        window = torch.arange(outputs[-1]).unsqueeze(1) * step + torch.arange(taps) * gap
        data = data.index_select(axis, window.reshape(-1)).unflatten(axis, window.shape)  # type: ignore[no-untyped-call]
    data = data.unflatten(1, (groups, -1))  # type: ignore[no-untyped-call]
    order = [0, 1, *range(3, 3 + 2 * rank, 2), 2, *range(4, 4 + 2 * rank, 2)]
    patches = data.permute(order).reshape(len(data), groups, prod(outputs), -1)
    found = patches @ weight.reshape(groups, weight.shape[0] // groups, -1).transpose(1, 2)
    return found.transpose(2, 3).reshape(len(data), weight.shape[0], *outputs)


PRODUCTS: dict[Any, Callable[..., Any]] = {
    _aten.linear.default: _linear,
    _aten.addmm.default: _add_product,
    _aten.baddbmm.default: _add_product,
    _aten.addbmm.default: _add_products,
    _aten.bilinear.default: _bilinear,
    _aten.convolution.default: _convolve,
}
