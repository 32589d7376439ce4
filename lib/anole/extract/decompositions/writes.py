"""Writes to places, in other words where TVM's importer lacks an operator or gets it wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Any

import torch

from anole.extract.decompositions.windows import strided_places

_aten = torch.ops.aten


def _index_put(
    data: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> Any:
    """Write values to places; TVM's importer reads beyond values that broadcast, and takes masks for numbers."""
    if accumulate and data.dtype == torch.bool:
        return _index_put(data.to(torch.int8), indices, values.to(torch.int8), True) != 0
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if any(index.dtype == torch.bool for index in given):
        return _masked_put(data, axes[0], given[0], values, accumulate) if len(given) == 1 else NotImplemented
    places = torch.broadcast_tensors(*given)  # type: ignore[no-untyped-call]
    kept = [axis for axis in range(data.dim()) if axis not in axes]
    # The indices' axes come first in the values if an axis that is kept lies between them.
    before = axes[0] if axes[-1] - axes[0] < len(axes) else 0
    order, n_own = [*axes, *kept], places[0].dim()
    sizes, rest = [data.shape[axis] for axis in axes], [data.shape[axis] for axis in kept]
    flat, n_rows = places[0].new_zeros(()), prod(sizes)
    for place, size in zip(places, sizes, strict=True):
        flat = flat * size + torch.where(place < 0, place + size, place)
    flat = flat.reshape(-1)
    values = values.expand(*rest[:before], *places[0].shape, *rest[before:])
    values = values.movedim(tuple(range(before, before + n_own)), tuple(range(n_own))).reshape(-1, *rest)
    rows = data.permute(order).reshape(n_rows, *rest)
    if accumulate:
        written = rows.scatter_add(0, flat.reshape(-1, *[1] * len(rest)).expand(values.shape), values)
    else:
        # Of each row, where it is taken from: what was there, or the last of the values that are written there.
        own = torch.arange(n_rows, device=flat.device)
        source = own.scatter(0, flat, torch.arange(n_rows, n_rows + len(flat), device=flat.device))
        written = torch.cat([rows, values]).index_select(0, source)
    return written.reshape(*sizes, *rest).permute([order.index(axis) for axis in range(data.dim())])


def _masked_put(data: torch.Tensor, before: int, mask: torch.Tensor, values: torch.Tensor, accumulate: bool) -> Any:
    """Write values that do not differ along the places where a mask is true."""
    behind = data.dim() - before - mask.dim()
    if values.dim() > behind:
        if values.shape[-1 - behind] != 1:
            return NotImplemented
        # The axis of the places becomes the mask's axes.
        values = values.reshape(*values.shape[: -1 - behind], *[1] * mask.dim(), *values.shape[values.dim() - behind :])
    mask = mask.reshape(*mask.shape, *[1] * behind)
    return torch.where(mask, data + values if accumulate else values, data)


def _masked_scatter(data: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    data, mask = torch.broadcast_tensors(data, mask)  # type: ignore[no-untyped-call]
    number = mask.reshape(-1).to(torch.int64).cumsum(0) - 1
    taken = source.reshape(-1).index_select(0, number.clamp(0, source.numel() - 1)).reshape(data.shape)
    return torch.where(mask, taken, data)


def _scatter_reduce(
    data: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """Sum and count for a mean; replace what is not to be included."""
    if data.dtype == torch.bool:
        numbers = [each.to(torch.int8) for each in (data, source)]
        mode = "amax" if reduce == "sum" else reduce
        return _aten.scatter_reduce(numbers[0], dim, index, numbers[1], mode, include_self=include_self) != 0
    source = source[tuple(slice(extent) for extent in index.shape)]
    ones = torch.ones_like(source)
    if not include_self:
        written = torch.zeros_like(data).scatter_add(dim, index, ones) != 0
        data = torch.where(written, _neutral(data.dtype, reduce), data)
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
    """Return what changes no result of a reduction."""
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
    places = index.reshape(-1, *[1] * (data.dim() - 1 - dim % data.dim())).expand(source.shape)
    return data.scatter_reduce(dim, places, source, reduce, include_self=include_self)


def _diagonal_scatter(data: torch.Tensor, source: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    moved = data.movedim((dim1, dim2), (0, 1))
    places = torch.arange(source.shape[-1])
    rows, columns = places + max(-offset, 0), places + max(offset, 0)
    return moved.index_put((rows, columns), source.movedim(-1, 0)).movedim((0, 1), (dim1, dim2))


def _as_strided_scatter(
    data: torch.Tensor, source: torch.Tensor, size: list[int], stride: list[int], storage_offset: int | None = None
) -> Any:
    places = strided_places(data, size, stride, storage_offset)
    if places is None:
        return NotImplemented
    return data.reshape(-1).index_put((places.reshape(-1),), source.reshape(-1)).reshape(data.shape)


def _joined(parts: list[torch.Tensor], dim: int = 0) -> Any:
    """Join what has elements; TVM does not compile the others."""
    kept = [part for part in parts if part.numel()]
    return NotImplemented if len(kept) in (0, len(parts)) else torch.cat(kept, dim)


WRITES: dict[Any, Callable[..., Any]] = {
    _aten.index_put.default: _index_put,
    _aten.scatter_reduce.two: _scatter_reduce,
    _aten.masked_scatter.default: _masked_scatter,
    _aten.put.default: _put,
    _aten.index_reduce.default: _index_reduce,
    _aten.diagonal_scatter.default: _diagonal_scatter,
    _aten.as_strided_scatter.default: _as_strided_scatter,
    _aten.cat.default: _joined,
}
