"""Reductions, norms and distances, in other words where TVM's importer lacks an operator or gets it wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from anole.extract.rewordings.arithmetic import of_booleans

_aten = torch.ops.aten


def _all_along(data: torch.Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> torch.Tensor:
    return torch.logical_not(_any_along(torch.logical_not(data), dim, keepdim))


def _any_along(data: torch.Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> torch.Tensor:
    return torch.amax(data.to(torch.int8), list(dim), keepdim) != 0


def _any(data: torch.Tensor) -> torch.Tensor:
    return torch.any(data.reshape(-1), 0)


def _only_place(data: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    return torch.zeros_like(data, dtype=torch.int64) if data.dim() == 0 else NotImplemented


def _extreme_along(
    extreme: Callable[..., torch.Tensor], place: Callable[..., torch.Tensor]
) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Returns the extreme values along an axis, and their places, without sorting."""

    def compute(data: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        if data.dim() == 0:
            return data.clone(), torch.zeros_like(data, dtype=torch.int64)
        return extreme(data, dim, keepdim), place(data, dim, keepdim)

    return compute


def _product_along(data: torch.Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Multiplies one half with the other until one is left; TVM's importer has the product of all elements only."""
    if dtype is None and not data.is_floating_point():
        dtype = torch.int64
    data = data.to(dtype or data.dtype).movedim(dim, 0)
    while (count := data.shape[0]) > 1:
        half = count // 2
        multiplied = data[:half] * data[half : 2 * half]
        data = torch.cat([multiplied, data[2 * half :]]) if count % 2 else multiplied
    return data.movedim(0, dim) if keepdim else data[0]


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


def _norm_by_batch(
    data: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Normalises by the statistics of the batch; returns these, and the running ones as they are afterwards."""
    if not training:
        return NotImplemented
    axes = [axis for axis in range(data.dim()) if axis != 1]
    shape = [-1, *[1] * (data.dim() - 2)]
    variance, mean = torch.var_mean(data, axes, correction=0)
    scale = torch.rsqrt(variance + eps)
    normal = (data - mean.reshape(shape)) * scale.reshape(shape)
    normal = normal if weight is None else normal * weight.reshape(shape)
    normal = normal if bias is None else normal + bias.reshape(shape)
    count = data.numel() // data.shape[1]
    seen = variance * (count / max(count - 1, 1))
    running = (running_mean + momentum * (mean - running_mean), running_var + momentum * (seen - running_var))
    return normal, mean, scale, *running


def _distances(data: torch.Tensor, other: torch.Tensor, p: float, mode: int | None) -> Any:
    return torch.linalg.vector_norm(data.unsqueeze(-2) - other.unsqueeze(-3), p, -1)


def _distances_within(data: torch.Tensor, p: float = 2) -> Any:
    rows, columns = torch.triu_indices(data.shape[0], data.shape[0], 1)
    return torch.linalg.vector_norm(data.index_select(0, rows) - data.index_select(0, columns), p, -1)


REDUCTIONS: dict[Any, Callable[..., Any]] = {
    _aten.amin.default: of_booleans(_all_along),
    _aten.amax.default: of_booleans(_any_along),
    _aten.min.default: of_booleans(_all_along),
    _aten.max.default: of_booleans(_any_along),
    _aten.prod.default: of_booleans(lambda data: torch.prod(data.to(torch.int64))),
    _aten.native_group_norm.default: _group_norm,
    _aten.var_mean.correction: _variance_and_mean,
    _aten.min.dim: _extreme_along(torch.amin, torch.argmin),
    _aten.max.dim: _extreme_along(torch.amax, torch.argmax),
    _aten.argmin.default: _only_place,
    _aten.argmax.default: _only_place,
    _aten.prod.dim_int: _product_along,
    _aten.any.default: _any,
    _aten._cdist_forward.default: _distances,
    _aten._pdist_forward.default: _distances_within,
    _aten._native_batch_norm_legit_functional.default: _norm_by_batch,
}
