"""Decomposes an exported torch program, and replaces operators that TVM's importer lacks."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from anole.extract.complex_pairs import rewrite_complex
from anole.extract.fold_program import fold_program

_aten = torch.ops.aten
_WHOLE = (_aten.linear.default, _aten.matmul.default)
"""Operators kept whole; torch would decompose them into products of weights repeated for every row of a batch."""


def decompose(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Returns a program in torch's core operators, plus recurrent layers, and products and linear layers of any rank.

    What depends on no input is a constant in it.
    """
    table = torch.export.default_decompositions()
    calls = {operator: program.graph.find_nodes(op="call_function", target=operator) for operator in RECURRENT}
    # torch decomposes all calls of a recurrent operator, or none.
    for operator in (*_WHOLE, *(each for each, nodes in calls.items() if all(map(is_convertible, nodes)))):
        del table[operator]
    for operator, reworded in _REWORDED.items():
        table[operator] = reworded
    decomposed: torch.export.ExportedProgram = program.run_decompositions(table)
    fold_program(decomposed)
    rewrite_complex(decomposed)
    return decomposed


def _attend(
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
    """Computes torch's scaled dot product attention; a row whose mask admits nothing gives 0."""
    if dropout_p:
        return NotImplemented
    if enable_gqa:
        key, value = (_repeated(shared, query.shape[-3]) for shared in (key, value))
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        return torch.softmax(scores + _bias(scores.new_ones(scores.shape[-2:]).tril().bool(), scores), -1) @ value
    if attn_mask is not None:
        return _aten._safe_softmax(scores + _bias(attn_mask, scores), -1) @ value
    return torch.softmax(scores, -1) @ value


def _bias(mask: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Returns the term that a mask adds to the scores; a boolean mask is true where a score counts."""
    if mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, -torch.inf).to(scores.dtype)


def _repeated(shared: torch.Tensor, heads: int) -> torch.Tensor:
    """Repeats keys or values that several consecutive heads share, once for each head."""
    *batch, groups, rows, width = shared.shape
    repeated = shared.unsqueeze(-3).expand(*batch, groups, heads // groups, rows, width)
    return repeated.reshape(*batch, heads, rows, width)


def _elu(data: torch.Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    if (scale, input_scale) == (1, 1):
        return NotImplemented
    return scale * torch.where(data > 0, data, alpha * torch.expm1(input_scale * data))


def _add(data: torch.Tensor, other: Any, *, alpha: float = 1) -> Any:
    if data.dtype == getattr(other, "dtype", None) == torch.bool:
        return data | other
    return NotImplemented if alpha == 1 else data + alpha * other


def _subtract(data: torch.Tensor, other: Any, *, alpha: float = 1) -> Any:
    return NotImplemented if alpha == 1 else data - alpha * other


def _subtract_from(data: torch.Tensor, other: Any, alpha: float = 1) -> Any:
    return (-data if alpha == 1 else data * -alpha) + other


def _divide(data: torch.Tensor, other: Any, *, rounding_mode: str | None = None) -> Any:
    """Divides operands of the result's type; TVM's importer divides integers as integers, and rejects mixed types."""
    dtype = torch.result_type(data, other)
    if dtype.is_complex:
        return NotImplemented
    if rounding_mode is None and not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    is_plain = data.dtype == dtype and (rounding_mode is None or isinstance(other, torch.Tensor))
    if is_plain and getattr(other, "dtype", dtype) == dtype:
        return NotImplemented
    other = other.to(dtype) if isinstance(other, torch.Tensor) else data.new_full((), other, dtype=dtype)
    return torch.div(data.to(dtype), other, rounding_mode=rounding_mode)


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


def _col2im(
    data: torch.Tensor,
    output_size: list[int],
    kernel_size: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
) -> Any:
    """Adds up the taps of patches as shifted images; torch's own words scatter every element."""
    if data.dim() != 3:
        return NotImplemented
    steps = zip(output_size, kernel_size, dilation, padding, stride, strict=True)
    rows, columns = ((size + 2 * pad - gap * (taps - 1) - 1) // step + 1 for size, taps, gap, pad, step in steps)
    taps = data.reshape(data.shape[0], -1, *kernel_size, rows, columns)
    height, width = (size + 2 * pad for size, pad in zip(output_size, padding, strict=True))
    # Zeros between the elements of a tap; those behind the last one may reach over the border.
    apart = torch.constant_pad_nd(taps.unsqueeze(-1).unsqueeze(-3), [0, stride[1] - 1, 0, 0, 0, stride[0] - 1])
    apart = apart.reshape(*taps.shape[:-2], rows * stride[0], columns * stride[1])
    whole = None
    for i in range(kernel_size[0]):
        for j in range(kernel_size[1]):
            top, left = i * dilation[0], j * dilation[1]
            sides = [left, width - left - apart.shape[-1], top, height - top - apart.shape[-2]]
            cut = apart[:, :, i, j, : height - top, : width - left]
            moved = torch.constant_pad_nd(cut, [max(side, 0) for side in sides])
            whole = moved if whole is None else whole + moved
    assert whole is not None
    return whole[:, :, padding[0] : height - padding[0], padding[1] : width - padding[1]]


def _index_put(
    data: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> Any:
    """Writes values to places; TVM's importer reads beyond values that broadcast, and takes masks for numbers."""
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
    """Writes values that do not differ along the places where a mask is true."""
    behind = data.dim() - before - mask.dim()
    if values.dim() > behind:
        if values.shape[-1 - behind] != 1:
            return NotImplemented
        # The axis of the places becomes the mask's axes.
        values = values.reshape(*values.shape[: -1 - behind], *[1] * mask.dim(), *values.shape[values.dim() - behind :])
    mask = mask.reshape(*mask.shape, *[1] * behind)
    return torch.where(mask, data + values if accumulate else values, data)


_REWORDED = {
    _aten.scaled_dot_product_attention.default: _attend,
    _aten.elu.default: _elu,
    _aten.add.Tensor: _add,
    _aten.sub.Tensor: _subtract,
    _aten.rsub.Tensor: _subtract_from,
    _aten.rsub.Scalar: _subtract_from,
    _aten.col2im.default: _col2im,
    _aten.div.Tensor: _divide,
    _aten.div.Tensor_mode: _divide,
    _aten.group_norm.default: _group_norm,
    _aten.index_put.default: _index_put,
    _aten._neg_view.default: lambda data: -data,
    _aten.adaptive_max_pool2d.default: _adaptive_max_pool2d,
}
"""Attention, whose products are tuned; operators that TVM's importer lacks; and those whose scales it ignores."""


RECURRENT = tuple(getattr(torch.ops.aten, name).input for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"))
"""Recurrent operators, which are converted as a whole if possible."""


def is_convertible(node: Any) -> bool:
    """Returns whether a call, a node of a `torch.fx` graph, can be converted: in float32 and without projections."""
    data, _, weights, has_biases, n_layers, _, is_training, is_bidirectional, _ = node.args
    n_own = n_layers * (2 if is_bidirectional else 1) * (4 if has_biases else 2)
    return data.meta["val"].dtype == torch.float32 and len(weights) == n_own and not is_training


def count_layers(node: Any) -> int:
    """Returns how many layers a call of a recurrent operator has; each is one product of all inputs."""
    return int(node.args[4])
