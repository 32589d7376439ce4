"""Decompositions of pooling, resizing and other windows that TVM's importer does not support or gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any

import torch

_aten = torch.ops.aten


def _unfold(data: torch.Tensor, dim: int, size: int, step: int) -> Any:
    if data.dim() == 0:
        return data.expand(size).clone() if size else NotImplemented
    dim = dim % data.dim()
    indices = torch.arange(0, data.shape[dim] - size + 1, step).unsqueeze(1) + torch.arange(size)
    return data.index_select(dim, indices.reshape(-1)).unflatten(dim, indices.shape).movedim(dim + 1, -1)  # type: ignore[no-untyped-call]


def _as_strided(data: torch.Tensor, size: list[int], stride: list[int], storage_offset: int | None = None) -> Any:
    data = data.permute(sorted(range(data.dim()), key=data.stride, reverse=True))
    offsets = strided_offsets(data, size, stride, storage_offset)
    return NotImplemented if offsets is None else data.reshape(-1).index_select(0, offsets.reshape(-1)).reshape(size)


def strided_offsets(
    data: torch.Tensor, size: list[int], stride: list[int], storage_offset: int | None
) -> torch.Tensor | None:
    """Return the offsets in flattened data that a strided view reads; None if it reads outside the data."""
    offset = 0 if storage_offset is None else storage_offset - data.storage_offset()
    last = offset + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
    if not data.is_contiguous() or offset < 0 or last >= data.numel():
        return None
    offsets = torch.full([], offset)
    for extent, step in zip(size, stride, strict=True):
        offsets = offsets.unsqueeze(-1) + torch.arange(extent) * step
    return offsets


def _col2im(
    data: torch.Tensor,
    output_size: list[int],
    kernel_size: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
) -> Any:
    """Add up the taps of patches as shifted images; torch's own decomposition scatters every element."""
    if data.dim() != 3:
        return NotImplemented
    steps = zip(output_size, kernel_size, dilation, padding, stride, strict=True)
    rows, columns = ((size + 2 * pad - gap * (taps - 1) - 1) // step + 1 for size, taps, gap, pad, step in steps)
    taps = data.reshape(data.shape[0], -1, *kernel_size, rows, columns)
    height, width = (size + 2 * pad for size, pad in zip(output_size, padding, strict=True))
    # Insert zeros between the elements of a tap; the last zeros may lie beyond the border.
    dilated = torch.constant_pad_nd(taps.unsqueeze(-1).unsqueeze(-3), [0, stride[1] - 1, 0, 0, 0, stride[0] - 1])
    dilated = dilated.reshape(*taps.shape[:-2], rows * stride[0], columns * stride[1])
    total = None
    for i in range(kernel_size[0]):
        for j in range(kernel_size[1]):
            top, left = i * dilation[0], j * dilation[1]
            sides = [left, width - left - dilated.shape[-1], top, height - top - dilated.shape[-2]]
            cropped = dilated[:, :, i, j, : height - top, : width - left]
            moved = torch.constant_pad_nd(cropped, [max(side, 0) for side in sides])
            total = moved if total is None else total + moved
    assert total is not None
    return total[:, :, padding[0] : height - padding[0], padding[1] : width - padding[1]]


def _average_pool(
    rank: int,
    data: torch.Tensor,
    kernel_size: list[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Average integers, or with a custom divisor."""
    pool = _aten.avg_pool2d if rank == 2 else _aten.avg_pool3d
    args = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    if not data.is_floating_point():
        return pool(data.double(), *args).trunc().to(data.dtype)
    if divisor_override is None:
        return NotImplemented
    steps, pads = (list(arg) * (rank // len(arg)) for arg in (stride or kernel_size, padding))
    sides = zip(data.shape[-rank:], pool(data, *args[:-1]).shape[-rank:], kernel_size, steps, pads, strict=True)
    # The last window may exceed the data by more than the padding.
    pad_pairs = [(pad, (outputs - 1) * step + taps - size - pad) for size, outputs, taps, step, pad in sides]
    padded = torch.constant_pad_nd(data, [extent for side in reversed(pad_pairs) for extent in side])
    return pool(padded, kernel_size, stride) * (prod(kernel_size) / divisor_override)


def _max_pool(
    data: torch.Tensor,
    kernel_size: list[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Also find the indices, from the windows; TVM's importer does not. Unused indices are eliminated."""
    pool = _aten.max_pool2d if len(kernel_size) == 2 else _aten.max_pool3d
    values = pool(data, kernel_size, stride, padding, dilation, ceil_mode)
    rank = len(kernel_size)
    steps, pads, gaps = (list(arg) * (rank // len(arg)) for arg in (stride or kernel_size, padding, dilation))
    sides = zip(data.shape[-rank:], values.shape[-rank:], kernel_size, steps, pads, gaps, strict=True)
    return values, _max_of_windows(data, [_windows(*side) for side in sides])[1]


def _windows(inputs: int, outputs: int, taps: int, step: int, pad: int, gap: int) -> torch.Tensor:
    """Return the indices of each window along a side, shape (outputs, taps); padding repeats the first index."""
    starts = (torch.arange(outputs) * step - pad).unsqueeze(1)
    first = starts + torch.clamp(-(starts // gap), min=0) * gap
    indices = starts + torch.arange(taps) * gap
    return torch.where((indices >= 0) & (indices < inputs), indices, first)


def _adaptive_max_pool(data: torch.Tensor, output_size: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pool over windows of different sizes; shorter windows repeat their last element."""
    return _max_of_windows(
        data, [_adaptive_windows(*side) for side in zip(data.shape[-len(output_size) :], output_size, strict=True)]
    )


def _adaptive_windows(inputs: int, outputs: int) -> torch.Tensor:
    """Return the indices of each window along a side, shape (outputs, length of the longest window)."""
    ends = [-(number * -inputs // outputs) for number in range(1, outputs + 1)]
    longest = max(end - number * inputs // outputs for number, end in enumerate(ends))
    starts = torch.arange(outputs) * inputs // outputs
    last = -(torch.arange(1, outputs + 1) * -inputs // outputs) - 1
    return torch.minimum(starts.unsqueeze(1) + torch.arange(longest), last.unsqueeze(1))


def _max_of_windows(data: torch.Tensor, windows: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest element of each window, and its index in the flattened sides.

    Args:
        data: shape (..., side, ...).
        windows: for each side, the indices of each window, shape (outputs, length).
    """
    first = data.dim() - len(windows)
    indices = torch.zeros([], dtype=torch.int64)
    for number, window in enumerate(windows):
        axis = first + 2 * number
        side = data.shape[axis]
        data = data.index_select(axis, window.reshape(-1)).unflatten(axis, window.shape)  # type: ignore[no-untyped-call]
        indices = indices.unsqueeze(-1).unsqueeze(-1) * side + window
    order = [*range(0, 2 * len(windows), 2), *range(1, 2 * len(windows), 2)]
    data = data.permute(*range(first), *(first + axis for axis in order)).flatten(first + len(windows))
    indices = indices.permute(order).flatten(len(windows))
    values, index = data.max(-1)
    return values, indices.expand(data.shape).gather(-1, index.unsqueeze(-1)).squeeze(-1)


def _sample_volume(
    data: torch.Tensor, grid: torch.Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> torch.Tensor:
    """Interpolate linearly between the corners around each position, or take the nearest corner.

    Args:
        data: shape (batch, channels, depth, rows, columns).
        grid: shape (batch, ..., 3): a column, a row and a depth between -1 and 1.
        interpolation_mode: 0 for linear, 1 for nearest.
        padding_mode: 0 for zeros outside the data, 1 for the border, 2 for a reflection.
        align_corners: whether -1 and 1 are the centers of the outer elements, instead of their borders.
    """
    batch, channels, *sides = data.shape
    positions = [
        _unnormalize(grid.select(-1, 2 - axis).reshape(batch, 1, -1), side, padding_mode, align_corners)
        for axis, side in enumerate(sides)
    ]
    is_linear = interpolation_mode == 0
    firsts = [position.floor() if is_linear else position.round() for position in positions]
    flat, total = data.reshape(batch, channels, -1), None
    for corner in product(*[range(2 if is_linear else 1)] * 3):
        index, weight = torch.zeros_like(positions[0]).long(), torch.ones_like(positions[0])
        for step, first, position, side in zip(corner, firsts, positions, sides, strict=True):
            corner_index = first + step
            weight = weight * (1 - (position - corner_index).abs()) if is_linear else weight
            weight = torch.where((corner_index >= 0) & (corner_index < side), weight, 0.0)
            index = index * side + corner_index.clamp(0, side - 1).long()
        values = flat.gather(2, index.expand(-1, channels, -1)) * weight
        total = values if total is None else total + values
    assert total is not None
    return total.reshape(batch, channels, *grid.shape[1:-1])


def _unnormalize(grid: torch.Tensor, side: int, padding_mode: int, align: bool) -> torch.Tensor:
    """Convert a coordinate between -1 and 1 to a position along a side, in elements."""
    position = (grid + 1) / 2 * (side - 1) if align else ((grid + 1) * side - 1) / 2
    if padding_mode == 2:
        low, span = (0.0, side - 1.0) if align else (-0.5, float(side))
        folded = torch.remainder((position - low).abs(), 2 * span) if span else torch.zeros_like(position)
        position = low + torch.minimum(folded, 2 * span - folded)
    return position.clamp(0, side - 1) if padding_mode else position


def _antialiased_resize(
    kernel: Callable[[torch.Tensor], torch.Tensor],
    support: int,
    data: torch.Tensor,
    size: list[int] | None,
    align: bool,
    row_scale: Any = None,
    column_scale: float | None = None,
) -> torch.Tensor:
    """Resize images with antialiasing by products with weight matrices."""
    scales = row_scale if isinstance(row_scale, (list, tuple)) else (row_scale, column_scale)
    size = size or [int(extent * scale) for extent, scale in zip(data.shape[2:], scales, strict=True)]
    rows, columns = (_weights(kernel, support, *side, align) for side in zip(data.shape[2:], size, scales, strict=True))
    return rows.to(data.dtype) @ (data @ columns.to(data.dtype).t())


def _weights(
    kernel: Callable[[torch.Tensor], torch.Tensor],
    support: int,
    inputs: int,
    outputs: int,
    factor: float | None,
    align: bool,
) -> torch.Tensor:
    """Return the weight of each input in each output along a side, shape (outputs, inputs)."""
    step = (inputs - 1) / max(outputs - 1, 1) if align else 1 / factor if factor else inputs / outputs
    width = max(step, 1.0)
    centers = (step * (torch.arange(outputs, dtype=torch.float64) + 0.5)).unsqueeze(1)
    positions = torch.arange(inputs)
    first = (centers - support * width + 0.5).trunc().clamp(min=0)
    end = (centers + support * width + 0.5).trunc().clamp(max=inputs)
    weights = kernel(((positions - centers + 0.5) / width).abs())
    weights = torch.where((positions >= first) & (positions < end), weights, 0.0)
    return weights / weights.sum(1, keepdim=True)


def _triangle(distance: torch.Tensor) -> torch.Tensor:
    return (1 - distance).clamp(min=0)


def _cubic(distance: torch.Tensor) -> torch.Tensor:
    near = (1.5 * distance - 2.5) * distance * distance + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    return torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))


WINDOWS: dict[Any, Callable[..., Any]] = {
    _aten.col2im.default: _col2im,
    _aten.adaptive_max_pool2d.default: _adaptive_max_pool,
    _aten.adaptive_max_pool3d.default: _adaptive_max_pool,
    _aten.max_pool2d_with_indices.default: _max_pool,
    _aten.max_pool3d_with_indices.default: _max_pool,
    _aten.avg_pool2d.default: partial(_average_pool, 2),
    _aten.avg_pool3d.default: partial(_average_pool, 3),
    _aten.grid_sampler_3d.default: _sample_volume,
    _aten.unfold.default: _unfold,
    _aten.as_strided.default: _as_strided,
    _aten.as_strided_copy.default: _as_strided,
    _aten._upsample_bilinear2d_aa.default: partial(_antialiased_resize, _triangle, 1),
    _aten._upsample_bilinear2d_aa.vec: partial(_antialiased_resize, _triangle, 1),
    _aten._upsample_bicubic2d_aa.default: partial(_antialiased_resize, _cubic, 2),
    _aten._upsample_bicubic2d_aa.vec: partial(_antialiased_resize, _cubic, 2),
}
