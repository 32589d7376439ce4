"""Decompositions of operators along an axis for scalar tensors, which TVM does not support: they get one axis."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch.utils import _pytree as pytree

_aten = torch.ops.aten


def _reshape_scalars(operator: Callable[..., Any], data: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Apply an operator along an axis to scalar operands that are reshaped to one axis first."""
    leaves = pytree.tree_leaves((data, args, kwargs))
    if all(leaf.dim() for leaf in leaves if isinstance(leaf, torch.Tensor)):
        return NotImplemented
    reshaped = pytree.tree_map_only(torch.Tensor, _with_axis, ((data, *args), kwargs))
    result = operator(*reshaped[0], **reshaped[1])
    return result if data.dim() else pytree.tree_map_only(torch.Tensor, lambda leaf: leaf.reshape([]), result)


def _with_axis(data: torch.Tensor) -> torch.Tensor:
    return data if data.dim() else data.reshape(1)


def _index_select(data: torch.Tensor, dim: int, index: torch.Tensor) -> Any:
    if data.dim() and index.dim():
        return NotImplemented
    selected = _with_axis(data).index_select(dim, _with_axis(index))
    return selected if data.dim() else selected.reshape([])


def _gather(data: torch.Tensor, dim: int, index: torch.Tensor, **kwargs: Any) -> Any:
    if data.dim() and index.dim():
        return NotImplemented
    return torch.gather(_with_axis(data), dim, _with_axis(index), **kwargs).reshape(index.shape)


_AXIS_OPERATORS = (
    *("_log_softmax.default", "_softmax.default", "amax.default", "amin.default", "any.dim", "any.dims"),
    *("argmax.default", "argmin.default", "cummax.default", "cummin.default", "cumprod.default", "cumsum.default"),
    *("flip.default", "index_reduce.default", "kthvalue.default", "linalg_vector_norm.default"),
    *("max.dim", "mean.dim", "median.dim", "min.dim", "mode.default", "nanmedian.dim", "prod.dim_int", "roll.default"),
    *("scatter.src", "scatter.value", "scatter_add.default", "scatter_reduce.two", "sort.default", "sort.stable"),
    *("sum.dim_IntList", "topk.default", "var.correction", "var_mean.correction"),
)

SCALARS: dict[Any, Callable[..., Any]] = {
    **{operator: partial(_reshape_scalars, operator) for operator in attrgetter(*_AXIS_OPERATORS)(_aten)},
    _aten.gather.default: _gather,
    _aten.index_select.default: _index_select,
}
