"""Decompositions of attention operators that TVM's importer does not support or gets wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Compute torch's scaled dot-product attention; the result of a fully masked row is 0."""
    if dropout_p:
        return NotImplemented
    if enable_gqa:
        key, value = (_repeat_heads(shared, query.shape[-3]) for shared in (key, value))
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        return torch.softmax(scores + _bias(scores.new_ones(scores.shape[-2:]).tril().bool(), scores), -1) @ value
    if attn_mask is not None:
        return _aten._safe_softmax(scores + _bias(attn_mask, scores), -1) @ value
    return torch.softmax(scores, -1) @ value


def _bias(mask: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Convert a mask to a bias to add to the scores; a boolean mask is true where a score is used."""
    if mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, -torch.inf).to(scores.dtype)


def _repeat_heads(shared: torch.Tensor, heads: int) -> torch.Tensor:
    """Repeat keys or values that several consecutive heads share, once per head."""
    *batch, groups, rows, width = shared.shape
    repeated = shared.unsqueeze(-3).expand(*batch, groups, heads // groups, rows, width)
    return repeated.reshape(*batch, heads, rows, width)


def _flash_attention_for_cpu(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> Any:
    """Compute attention and the logsumexp of its scores."""
    if dropout_p:
        return NotImplemented
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores + _bias(scores.new_ones(scores.shape[-2:]).tril().bool(), scores)
    if attn_mask is not None:
        scores = scores + _bias(attn_mask, scores)
    return _aten._safe_softmax(scores, -1) @ value, torch.logsumexp(scores, -1)


ATTENTION: dict[Any, Callable[..., Any]] = {
    _aten.scaled_dot_product_attention.default: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu.default: _flash_attention_for_cpu,
}
