"""Decomposes an exported torch program, and replaces operators that TVM's importer lacks."""

from __future__ import annotations

from typing import Any

import torch

from anole.extract.passes.attention import attend

_aten = torch.ops.aten
_WHOLE = (_aten.linear.default, _aten.matmul.default)
"""Operators kept whole; torch would decompose them into products of weights repeated for every row of a batch."""


def decompose(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Returns a program in torch's core operators, plus linear layers and matrix products of any rank."""
    table = torch.export.default_decompositions()
    for operator in _WHOLE:
        del table[operator]
    for operator, reworded in _REWORDED.items():
        table[operator] = reworded
    decomposed: torch.export.ExportedProgram = program.run_decompositions(table)
    return decomposed


def _elu(data: torch.Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    if (scale, input_scale) == (1, 1):
        return NotImplemented
    return scale * torch.where(data > 0, data, alpha * torch.expm1(input_scale * data))


def _add(data: torch.Tensor, other: Any, *, alpha: float = 1) -> Any:
    return NotImplemented if alpha == 1 else data + alpha * other


def _subtract(data: torch.Tensor, other: Any, *, alpha: float = 1) -> Any:
    return NotImplemented if alpha == 1 else data - alpha * other


def _subtract_from(data: torch.Tensor, other: Any, alpha: float = 1) -> Any:
    return (-data if alpha == 1 else data * -alpha) + other


def _group_norm(
    data: torch.Tensor,
    groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:
    if weight is not None and bias is not None:
        return NotImplemented
    channels = data.shape[1]
    weight = data.new_ones(channels) if weight is None else weight
    bias = data.new_zeros(channels) if bias is None else bias
    return torch.group_norm(data, groups, weight, bias, eps)


def _adaptive_max_pool2d(data: torch.Tensor, output_size: list[int]) -> Any:
    sides = list(zip(data.shape[-2:], output_size, strict=True))
    if any(inputs % outputs for inputs, outputs in sides):
        return NotImplemented
    kernel = [inputs // outputs for inputs, outputs in sides]
    return _aten.max_pool2d_with_indices(data, kernel, kernel)


_REWORDED = {
    _aten.scaled_dot_product_attention.default: attend,
    _aten.elu.default: _elu,
    _aten.add.Tensor: _add,
    _aten.sub.Tensor: _subtract,
    _aten.rsub.Tensor: _subtract_from,
    _aten.rsub.Scalar: _subtract_from,
    _aten.group_norm.default: _group_norm,
    _aten.adaptive_max_pool2d.default: _adaptive_max_pool2d,
}
"""Attention, whose products are tuned; operators that TVM's importer lacks; and those whose scales it ignores."""
