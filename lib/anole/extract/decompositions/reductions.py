"""Decompositions of reductions, normalization and distances that TVM's importer does not support or gets wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

_aten = torch.ops.aten


def _reduce_with_index(
    reduce: Callable[..., torch.Tensor], index_of: Callable[..., torch.Tensor]
) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Return a decomposition into the minima or maxima along an axis and their indices, without sorting."""
    return lambda data, dim, keepdim=False: (reduce(data, dim, keepdim), index_of(data, dim, keepdim))


def _product_along(data: torch.Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Multiply halves until one element remains; TVM's importer only supports the product of all elements."""
    if dtype is None and not data.is_floating_point():
        dtype = torch.int64
    data = data.to(dtype or data.dtype).movedim(dim, 0)
    while (count := data.shape[0]) > 1:
        half = count // 2
        multiplied = data[:half] * data[half : 2 * half]
        data = torch.cat([multiplied, data[2 * half :]]) if count % 2 else multiplied
    return data.movedim(0, dim) if keepdim else data[0]


def _cumulative_min_or_max(
    is_better: Callable[..., torch.Tensor], value: torch.Tensor, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the cumulative maximum or minimum and the last index at which it occurs."""
    value = value.movedim(dim, -1)
    index = torch.arange(value.shape[-1]).expand(value.shape)
    step = 1
    while step < value.shape[-1]:
        current, previous = value[..., step:], value[..., :-step]
        is_kept = is_better(current, previous) | current.isnan()
        value = torch.cat([value[..., :step], torch.where(is_kept, current, previous)], -1)
        index = torch.cat([index[..., :step], torch.where(is_kept, index[..., step:], index[..., :-step])], -1)
        step *= 2
    return value.movedim(-1, dim), index.movedim(-1, dim)


def _kth_value(data: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    value, index = (part.narrow(dim, k - 1, 1) for part in torch.sort(data, dim))
    return _squeeze(value, index, dim, keepdim)


def _stable_sort(
    data: torch.Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.sort(data, dim, descending)  # TVM's sort is stable.


def _mode(data: torch.Tensor, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the most frequent value by counting the elements equal to each element."""
    values, indices = torch.sort(data, dim)
    values, indices = values.movedim(dim, -1), indices.movedim(dim, -1)
    counts = (values.unsqueeze(-1) == values.unsqueeze(-2)).sum(-1)
    first = counts.argmax(-1, keepdim=True)
    last = first + counts.amax(-1, keepdim=True) - 1
    value, index = values.gather(-1, first).movedim(-1, dim), indices.gather(-1, last).movedim(-1, dim)
    return _squeeze(value, index, dim, keepdim)


def _nanmedian_along(data: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort NaN to the end, and take the median of the other values."""
    if not data.is_floating_point():
        return torch.median(data, dim, keepdim)
    is_number = torch.logical_not(data.isnan())
    values, indices = torch.sort(torch.where(is_number, data, torch.inf), dim)
    middle = (is_number.sum(dim, keepdim=True) - 1).clamp(min=0) // 2
    value = torch.where(is_number.any(dim, keepdim=True), values.gather(dim, middle), torch.nan)
    return _squeeze(value, indices.gather(dim, middle), dim, keepdim)


def _squeeze(value: torch.Tensor, index: torch.Tensor, dim: int, keepdim: bool) -> tuple[torch.Tensor, torch.Tensor]:
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


def _variance_and_mean(
    data: torch.Tensor, dim: list[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    axes = dim or list(range(data.dim()))
    return torch.var(data, axes, correction=correction, keepdim=keepdim), torch.mean(data, axes, keepdim)


def _group_norm(
    data: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    n: int,
    channels: int,
    pixels: int,
    groups: int,
    eps: float,
) -> Any:
    if weight is not None and bias is not None:
        return NotImplemented
    weight = data.new_ones(channels) if weight is None else weight
    bias = data.new_zeros(channels) if bias is None else bias
    return _aten.native_group_norm(data, weight, bias, n, channels, pixels, groups, eps)


def _batch_norm(
    data: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Normalize by the batch statistics; also return these and the updated running statistics."""
    if not training:
        return NotImplemented
    axes = [axis for axis in range(data.dim()) if axis != 1]
    shape = [-1, *[1] * (data.dim() - 2)]
    variance, mean = torch.var_mean(data, axes, correction=0)
    scale = torch.rsqrt(variance + eps)
    normalized = (data - mean.reshape(shape)) * scale.reshape(shape)
    normalized = normalized if weight is None else normalized * weight.reshape(shape)
    normalized = normalized if bias is None else normalized + bias.reshape(shape)
    count = data.numel() // data.shape[1]
    unbiased = variance * (count / max(count - 1, 1))
    running = (running_mean + momentum * (mean - running_mean), running_var + momentum * (unbiased - running_var))
    return normalized, mean, scale, *running


def _pairwise_distances(data: torch.Tensor, other: torch.Tensor, p: float, mode: int | None) -> Any:
    return torch.linalg.vector_norm(data.unsqueeze(-2) - other.unsqueeze(-3), p, -1)


def _distances_between_rows(data: torch.Tensor, p: float = 2) -> Any:
    rows, columns = torch.triu_indices(data.shape[0], data.shape[0], 1)
    return torch.linalg.vector_norm(data.index_select(0, rows) - data.index_select(0, columns), p, -1)


REDUCTIONS: dict[Any, Callable[..., Any]] = {
    _aten.prod.default: lambda data: torch.prod(data.to(torch.int64)) if data.dtype == torch.bool else NotImplemented,
    _aten.native_group_norm.default: _group_norm,
    _aten.var_mean.correction: _variance_and_mean,
    _aten.min.dim: _reduce_with_index(torch.amin, torch.argmin),
    _aten.max.dim: _reduce_with_index(torch.amax, torch.argmax),
    _aten.prod.dim_int: _product_along,
    _aten.cummax.default: partial(_cumulative_min_or_max, torch.ge),
    _aten.cummin.default: partial(_cumulative_min_or_max, torch.le),
    _aten.kthvalue.default: _kth_value,
    _aten.mode.default: _mode,
    _aten.nanmedian.default: lambda data: _nanmedian_along(data.reshape(-1), 0)[0],
    _aten.nanmedian.dim: _nanmedian_along,
    _aten.sort.stable: _stable_sort,
    _aten.any.default: lambda data: torch.any(data.reshape(-1), 0),
    _aten._cdist_forward.default: _pairwise_distances,
    _aten._pdist_forward.default: _distances_between_rows,
    _aten._native_batch_norm_legit_functional.default: _batch_norm,
}
