"""Decompositions of lookups, in tables or sorted sequences, that TVM's importer does not support or gets wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten


def _searchsorted(
    sequence: torch.Tensor,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> torch.Tensor:
    """Find insertion points by counting the elements before each value."""
    sequence = sequence if sorter is None else sequence.gather(-1, sorter)
    queries = torch.as_tensor(values).unsqueeze(-1)
    sequence = sequence.unsqueeze(-2) if sequence.dim() > 1 else sequence
    is_before = sequence <= queries if right or side == "right" else sequence < queries
    return is_before.sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def _bucketize(values: Any, boundaries: torch.Tensor, *, out_int32: bool = False, right: bool = False) -> Any:
    """Count the boundaries before a scalar or values of another dtype, for which TVM has no search."""
    if isinstance(values, torch.Tensor) and values.dim() and values.dtype == boundaries.dtype:
        return NotImplemented
    return _searchsorted(boundaries, values, out_int32=out_int32, right=right)


def _embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[torch.Tensor, ...]:
    """Return the sum, mean or maximum of each bag's rows, the bag of each index, and twice the sizes of the bags."""
    starts = offsets[:-1] if include_last_offset else offsets
    bags = (torch.arange(len(indices)).unsqueeze(1) >= starts).sum(1) - 1
    is_counted = indices != padding_idx
    sizes = torch.zeros_like(starts).index_add(0, bags, is_counted.to(starts.dtype))
    rows = weight.index_select(0, indices)
    empty = weight.new_zeros(len(starts), weight.shape[1])
    if mode == 2:
        rows = torch.where(is_counted.unsqueeze(1), rows, -torch.inf)
        result = torch.where(sizes.unsqueeze(1) > 0, (empty - torch.inf).index_reduce(0, bags, rows, "amax"), empty)
    else:
        rows = rows if per_sample_weights is None else rows * per_sample_weights.unsqueeze(1)
        result = empty.index_add(0, bags, torch.where(is_counted.unsqueeze(1), rows, 0.0))
        result = result / sizes.clamp(min=1).unsqueeze(1) if mode == 1 else result
    return result, bags, sizes, sizes


def _full_like(data: torch.Tensor, value: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    """Return a constant tensor for infinity or NaN, since TVM cannot fill a tensor with these."""
    if math.isfinite(value):
        return NotImplemented
    return torch.full(data.shape, value, dtype=dtype or data.dtype)


def _as_strided(data: torch.Tensor, size: list[int], stride: list[int], offset: int | None = None) -> Any:
    """Look up each element by its offset in the memory of a tensor that is stored without gaps."""
    data, start = data.permute(sorted(range(data.dim()), key=data.stride, reverse=True)), offset or 0
    last = start + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
    if not data.is_contiguous() or data.storage_offset() or last >= data.numel():
        return NotImplemented
    offsets = torch.full((), start)
    for extent, step in zip(size, stride, strict=True):
        offsets = offsets.unsqueeze(-1) + torch.arange(extent) * step
    return data.flatten()[offsets]


LOOKUPS: dict[Any, Callable[..., Any]] = {
    _aten.as_strided.default: _as_strided,
    _aten.full_like.default: _full_like,
    _aten.searchsorted.Tensor: _searchsorted,
    _aten.searchsorted.Scalar: _searchsorted,
    _aten.bucketize.Tensor: _bucketize,
    _aten.bucketize.Scalar: _bucketize,
    _aten._embedding_bag.default: _embedding_bag,
    _aten._embedding_bag_forward_only.default: _embedding_bag,
}
