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
    """Return each bag's sum, mean or maximum, the bag of each index, and the bags' sizes (also as the last result)."""
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


LOOKUPS: dict[Any, Callable[..., Any]] = {
    _aten.full_like.default: _full_like,
    _aten.searchsorted.Tensor: _searchsorted,
    _aten.searchsorted.Scalar: _searchsorted,
    _aten.bucketize.Tensor: _bucketize,
    _aten.bucketize.Scalar: _bucketize,
    _aten._embedding_bag.default: _embedding_bag,
    _aten._embedding_bag_forward_only.default: _embedding_bag,
}
