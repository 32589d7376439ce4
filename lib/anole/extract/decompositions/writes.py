"""Decompositions of indexed writes that TVM's importer does not support or gets wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Any

import torch

from anole.extract.decompositions.windows import strided_offsets

_aten = torch.ops.aten


def _index_put(
    data: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> Any:
    """Write values at indices; TVM's importer reads past the end of broadcast values, and treats masks as indices."""
    if accumulate and data.dtype == torch.bool:
        return _index_put(data.to(torch.int8), indices, values.to(torch.int8), True) != 0
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    tensors = [index for index in indices if index is not None]
    if any(index.dtype == torch.bool for index in tensors):
        return _masked_put(data, axes[0], tensors[0], values, accumulate) if len(tensors) == 1 else NotImplemented
    positions = torch.broadcast_tensors(*tensors)  # type: ignore[no-untyped-call]
    other_axes = [axis for axis in range(data.dim()) if axis not in axes]
    # The indices' axes come first in the values if there is an unindexed axis between the indexed ones.
    start = axes[0] if axes[-1] - axes[0] < len(axes) else 0
    order, n_index_axes = [*axes, *other_axes], positions[0].dim()
    sizes, rest = [data.shape[axis] for axis in axes], [data.shape[axis] for axis in other_axes]
    flat, n_rows = positions[0].new_zeros(()), prod(sizes)
    for position, size in zip(positions, sizes, strict=True):
        flat = flat * size + torch.where(position < 0, position + size, position)
    flat = flat.reshape(-1)
    values = values.expand(*rest[:start], *positions[0].shape, *rest[start:])
    values = values.movedim(tuple(range(start, start + n_index_axes)), tuple(range(n_index_axes))).reshape(-1, *rest)
    rows = data.permute(order).reshape(n_rows, *rest)
    if accumulate:
        result = rows.scatter_add(0, flat.reshape(-1, *[1] * len(rest)).expand(values.shape), values)
    else:
        # The source of each row: the row itself, or the last value that is written to it.
        row_numbers = torch.arange(n_rows, device=flat.device)
        source = row_numbers.scatter(0, flat, torch.arange(n_rows, n_rows + len(flat), device=flat.device))
        result = torch.cat([rows, values]).index_select(0, source)
    return result.reshape(*sizes, *rest).permute([order.index(axis) for axis in range(data.dim())])


def _masked_put(data: torch.Tensor, first_axis: int, mask: torch.Tensor, values: torch.Tensor, accumulate: bool) -> Any:
    """Write values that are the same at all positions at which a mask is true."""
    n_rest = data.dim() - first_axis - mask.dim()
    if values.dim() > n_rest:
        if values.shape[-1 - n_rest] != 1:
            return NotImplemented
        # The axis of the selected positions becomes the mask's axes.
        values = values.reshape(*values.shape[: -1 - n_rest], *[1] * mask.dim(), *values.shape[values.dim() - n_rest :])
    mask = mask.reshape(*mask.shape, *[1] * n_rest)
    return torch.where(mask, data + values if accumulate else values, data)


def _masked_scatter(data: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    data, mask = torch.broadcast_tensors(data, mask)  # type: ignore[no-untyped-call]
    ordinal = mask.reshape(-1).to(torch.int64).cumsum(0) - 1
    values = source.reshape(-1).index_select(0, ordinal.clamp(0, source.numel() - 1)).reshape(data.shape)
    return torch.where(mask, values, data)


def _scatter_reduce(
    data: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """Divide sums by counts for a mean; overwrite the elements of `data` that must not be included."""
    if data.dtype == torch.bool:
        as_int8 = [operand.to(torch.int8) for operand in (data, source)]
        mode = "amax" if reduce == "sum" else reduce
        return _aten.scatter_reduce(as_int8[0], dim, index, as_int8[1], mode, include_self=include_self) != 0
    source = source[tuple(slice(extent) for extent in index.shape)]
    ones = torch.ones_like(source)
    if not include_self:
        is_written = torch.zeros_like(data).scatter_add(dim, index, ones) != 0
        data = torch.where(is_written, _neutral(data.dtype, reduce), data)
    if reduce == "sum":
        return data.scatter_add(dim, index, source)
    if reduce == "mean":
        counts = (torch.ones_like if include_self else torch.zeros_like)(data).scatter_add(dim, index, ones)
        rounding = None if data.is_floating_point() else "floor"
        return torch.div(
            data.scatter_add(dim, index, source), torch.where(counts == 0, 1, counts), rounding_mode=rounding
        )
    return NotImplemented if include_self else _aten.scatter_reduce(data, dim, index, source, reduce)


def _neutral(dtype: torch.dtype, reduce: str) -> Any:
    """Return the neutral element of a reduction."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if dtype.is_floating_point:
        return math.inf if reduce == "amin" else -math.inf
    return torch.iinfo(dtype).max if reduce == "amin" else torch.iinfo(dtype).min


def _put(data: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    return data.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate).reshape(data.shape)


def _index_reduce(
    data: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, *, include_self: bool = True
) -> torch.Tensor:
    indices = index.reshape(-1, *[1] * (data.dim() - 1 - dim % data.dim())).expand(source.shape)
    return data.scatter_reduce(dim, indices, source, reduce, include_self=include_self)


def _diagonal_scatter(data: torch.Tensor, source: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    moved = data.movedim((dim1, dim2), (0, 1))
    positions = torch.arange(source.shape[-1])
    rows, columns = positions + max(-offset, 0), positions + max(offset, 0)
    return moved.index_put((rows, columns), source.movedim(-1, 0)).movedim((0, 1), (dim1, dim2))


def _as_strided_scatter(
    data: torch.Tensor, source: torch.Tensor, size: list[int], stride: list[int], storage_offset: int | None = None
) -> Any:
    offsets = strided_offsets(data, size, stride, storage_offset)
    if offsets is None:
        return NotImplemented
    return data.reshape(-1).index_put((offsets.reshape(-1),), source.reshape(-1)).reshape(data.shape)


def _concatenate(parts: list[torch.Tensor], dim: int = 0) -> Any:
    """Concatenate the non-empty parts; TVM does not compile empty ones."""
    non_empty = [part for part in parts if part.numel()]
    return NotImplemented if len(non_empty) in (0, len(parts)) else torch.cat(non_empty, dim)


WRITES: dict[Any, Callable[..., Any]] = {
    _aten.index_put.default: _index_put,
    _aten.scatter_reduce.two: _scatter_reduce,
    _aten.masked_scatter.default: _masked_scatter,
    _aten.put.default: _put,
    _aten.index_reduce.default: _index_reduce,
    _aten.diagonal_scatter.default: _diagonal_scatter,
    _aten.as_strided_scatter.default: _as_strided_scatter,
    _aten.cat.default: _concatenate,
}
