"""Rewrite complex tensors of an exported program as pairs of real ones, and Fourier transforms as matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import pi
from typing import Any

import torch

from anole.extract.fold_program import add_constant, given_values

_aten = torch.ops.aten
_MAX_TRANSFORM_LENGTH = 2048
"""Max length of an axis to transform; a matrix for both parts then has 16 million elements."""

Pair = tuple[Any, Any]
"""The real and the imaginary part, each a node or a Python number."""


def rewrite_complex(program: torch.export.ExportedProgram) -> None:
    """Replace the complex tensors of a program of core operators in place, except where an operator is unknown."""
    nodes = [node for node in program.graph.nodes if has_complex(node)]
    pairs = _constant_pairs(program, nodes) if nodes else {}
    for node in nodes:
        rewrite = _REWRITES.get(node.target)
        unconverted = [operand for operand in node.all_input_nodes if _is_complex(operand) and operand not in pairs]
        if rewrite is None or unconverted or (_is_complex(node) and node.meta["val"].dtype != torch.complex64):
            continue
        with program.graph.inserting_before(node):
            emit = _Emitter(program, node, pairs)
            result = rewrite(emit, *node.args, **node.kwargs)
            if isinstance(result, tuple):
                pairs[node] = (emit.broadcast(result[0]), emit.broadcast(result[1]))
            elif result is not None:
                node.replace_all_uses_with(result)
    for node in reversed(nodes):
        if not node.users and (node.op == "call_function" or node in pairs):
            _erase(program, node)


def _constant_pairs(program: torch.export.ExportedProgram, nodes: Sequence[torch.fx.Node]) -> dict[torch.fx.Node, Pair]:
    """Add the parts of complex constants among some nodes to a program."""
    values = given_values(program)

    def split(node: torch.fx.Node) -> Pair:
        parts = {"real": values[node].real, "imaginary": values[node].imag}
        real, imaginary = (add_constant(program, f"{node.name}_{name}", part) for name, part in parts.items())
        return real, imaginary

    return {node: split(node) for node in nodes if node in values and values[node].dtype == torch.complex64}


def has_complex(node: torch.fx.Node) -> bool:
    """Whether a node computes complex values, or reads some."""
    return any(map(_is_complex, [node, *node.all_input_nodes]))


def _is_complex(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_complex()


def _erase(program: torch.export.ExportedProgram, node: torch.fx.Node) -> None:
    program.graph.erase_node(node)
    specs = program.graph_signature.input_specs
    for spec in [spec for spec in specs if spec.arg.name == node.name]:
        specs.remove(spec)
        program.constants.pop(spec.target, None)


@dataclass(frozen=True)
class _Emitter:
    """A builder that inserts operators before a node."""

    program: torch.export.ExportedProgram
    node: torch.fx.Node
    pairs: dict[torch.fx.Node, Pair]

    def __call__(self, operator: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        node: torch.fx.Node = self.program.graph.call_function(operator, args, kwargs)
        with self.node.meta["val"].fake_mode:
            value = operator(*torch.fx.node.map_arg(args, lambda operand: operand.meta["val"]), **kwargs)
        node.meta = {**self.node.meta, "val": value}
        return node

    def parts(self, operand: Any) -> Pair:
        """Return the real and the imaginary part of an operand: a complex or real tensor, or a number."""
        if not isinstance(operand, torch.fx.Node):
            return operand.real, operand.imag
        if operand in self.pairs:
            return self.pairs[operand]
        is_float = operand.meta["val"].is_floating_point()
        return (operand if is_float else self(_aten._to_copy.default, operand, dtype=torch.float32)), 0

    def broadcast(self, part: Any) -> torch.fx.Node:
        """Broadcast a part of the node to the node's shape."""
        shape = list(self.node.meta["val"].shape)
        if not isinstance(part, torch.fx.Node):
            return self(_aten.full.default, shape, float(part))
        return part if list(part.meta["val"].shape) == shape else self(_aten.expand.default, part, shape)

    def constant(self, value: torch.Tensor) -> torch.fx.Node:
        return add_constant(self.program, f"fourier_{self.node.name}_{len(self.program.constants)}", value.float())

    def multiply(self, left: Any, right: Any, operator: Any = _aten.mul.Tensor) -> Any:
        """Multiply two operands; one of them may be a Python number."""
        if not isinstance(left, torch.fx.Node):
            left, right = right, left
        return 0 if isinstance(left, (int, float)) or right == 0 else self(operator, left, right)

    def add(self, left: Any, right: Any, sign: int = 1) -> Any:
        """Add or subtract two operands; one of them may be zero."""
        if isinstance(right, (int, float)) and right == 0:
            return left
        if isinstance(left, (int, float)):
            signed = right if sign > 0 else self(_aten.neg.default, right)
            return self(_aten.add.Tensor, signed, left) if left else signed
        return self(_aten.add.Tensor if sign > 0 else _aten.sub.Tensor, left, right)


def _map_parts(emit: _Emitter, data: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply an operator, such as a slice, to each part separately."""
    if kwargs.keys() - {"memory_format"}:
        return None
    real, imaginary = emit.parts(data)
    return emit(emit.node.target, real, *args), emit(emit.node.target, imaginary, *args)


def _concatenate(emit: _Emitter, data: Sequence[Any], axis: int = 0) -> Any:
    if any(operand not in emit.pairs for operand in data):
        return None
    real, imaginary = zip(*(emit.pairs[operand] for operand in data), strict=True)
    return emit(_aten.cat.default, list(real), axis), emit(_aten.cat.default, list(imaginary), axis)


def _add(emit: _Emitter, left: Any, right: Any, *, alpha: float = 1, sign: int = 1) -> Any:
    if alpha != 1:
        return None
    (a, b), (c, d) = emit.parts(left), emit.parts(right)
    return emit.add(a, c, sign), emit.add(b, d, sign)


def _multiply(emit: _Emitter, left: Any, right: Any) -> Any:
    (a, b), (c, d), operator = emit.parts(left), emit.parts(right), emit.node.target
    multiply = partial(emit.multiply, operator=operator)
    real = emit.add(multiply(a, c), multiply(b, d), -1)
    return real, emit.add(multiply(a, d), multiply(b, c))


def _divide(emit: _Emitter, left: Any, right: Any) -> Any:
    if right in emit.pairs or isinstance(right, complex):
        return None
    a, b = emit.parts(left)
    return emit(_aten.div.Tensor, a, right), emit(_aten.div.Tensor, b, right)


def _absolute(emit: _Emitter, data: torch.fx.Node) -> Any:
    squares = [emit(_aten.mul.Tensor, part, part) for part in emit.parts(data)]
    return emit(_aten.sqrt.default, emit(_aten.add.Tensor, *squares))


def _conjugate(emit: _Emitter, data: torch.fx.Node) -> Any:
    real, imaginary = emit.parts(data)
    return real, emit(_aten.neg.default, imaginary)


def _as_real(emit: _Emitter, data: torch.fx.Node) -> Any:
    return emit(_aten.cat.default, [emit(_aten.unsqueeze.default, part, -1) for part in emit.parts(data)], -1)


def _fft_real(emit: _Emitter, data: torch.fx.Node, axes: Sequence[int], norm: int, onesided: bool) -> Any:
    *other_axes, last = axes
    size = _extent(data, last)
    count = size // 2 + 1 if onesided else size
    transform = _transform_matrix(size, norm, forward=True)
    if transform is None:
        return None
    product = _matmul(emit, [data], last, torch.cat([transform[0][:, :count], transform[1][:, :count]], 1))
    return _fft(emit, (product[0], product[1]), other_axes, norm, forward=True)


def _fft_to_real(emit: _Emitter, data: torch.fx.Node, axes: Sequence[int], norm: int, size: int) -> Any:
    """Invert the transform; each frequency counts twice, except the first, and the middle one if the size is even."""
    *other_axes, last = axes
    pair = _fft(emit, emit.parts(data), other_axes, norm, forward=False)
    transform = _transform_matrix(size, norm, forward=False)
    if pair is None or transform is None or _extent(pair[0], last) != size // 2 + 1:
        return None
    counts = torch.tensor([1.0 if 2 * i in (0, size) else 2.0 for i in range(size // 2 + 1)], dtype=torch.float64)
    matrix = torch.cat([part[: len(counts)] * counts[:, None] for part in (transform[0], -transform[1])])
    (result,) = _matmul(emit, list(pair), last, matrix, n_parts=1)
    return result


def _fft(emit: _Emitter, pair: Pair, axes: Sequence[int], norm: int, forward: bool) -> Pair | None:
    for axis in axes:
        transform = _transform_matrix(_extent(pair[0], axis), norm, forward)
        if transform is None:
            return None
        real, imaginary = transform
        matrix = torch.cat([torch.cat([real, imaginary], 1), torch.cat([-imaginary, real], 1)])
        pair = tuple(_matmul(emit, list(pair), axis, matrix))  # type: ignore[assignment]
    return pair


def _transform_matrix(size: int, norm: int, forward: bool) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the real and the imaginary part of the transform's matrix; None if it is too large."""
    if size > _MAX_TRANSFORM_LENGTH:
        return None
    positions = torch.arange(size)
    angles = (positions[:, None] * positions % size).double() * (2 * pi / size)
    scale = size ** (-norm / 2)
    return scale * angles.cos(), (-scale if forward else scale) * angles.sin()


def _matmul(emit: _Emitter, parts: list[Any], axis: int, matrix: torch.Tensor, n_parts: int = 2) -> list[torch.fx.Node]:
    """Multiply one axis of all parts, concatenated, with a matrix; return the parts of the product."""
    rank = parts[0].meta["val"].dim()
    order = [*(i for i in range(rank) if i != axis % rank), axis % rank]
    last = [emit(_aten.permute.default, part, order) for part in parts]
    concatenated = emit(_aten.cat.default, last, -1) if len(last) > 1 else last[0]
    product = emit(_aten.matmul.default, concatenated, emit.constant(matrix))
    size, inverse_order = matrix.shape[1] // n_parts, [order.index(i) for i in range(rank)]
    cuts = [emit(_aten.slice.Tensor, product, -1, i * size, (i + 1) * size) for i in range(n_parts)]
    return [emit(_aten.permute.default, cut, inverse_order) for cut in cuts]


def _extent(data: torch.fx.Node, axis: int) -> int:
    return int(data.meta["val"].shape[axis])


_REWRITES: dict[Any, Callable[..., Any]] = {
    _aten._fft_r2c.default: _fft_real,
    _aten._fft_c2c.default: lambda emit, data, *settings: _fft(emit, emit.parts(data), *settings),
    _aten._fft_c2r.default: _fft_to_real,
    _aten.view_as_real.default: _as_real,
    _aten.view_as_complex.default: lambda emit, data: tuple(emit(_aten.select.int, data, -1, i) for i in (0, 1)),
    _aten.complex.default: lambda emit, real, imaginary: (real, imaginary),
    _aten._to_copy.default: lambda emit, data, **kwargs: (
        emit.parts(data) if kwargs == {"dtype": torch.complex64} else None
    ),
    _aten.real.default: lambda emit, data: emit.parts(data)[0],
    _aten.imag.default: lambda emit, data: emit.parts(data)[1],
    _aten.abs.default: _absolute,
    _aten._conj.default: _conjugate,
    _aten._conj_physical.default: _conjugate,
    _aten.conj_physical.default: _conjugate,
    _aten.add.Tensor: _add,
    _aten.sub.Tensor: partial(_add, sign=-1),
    _aten.mul.Tensor: _multiply,
    _aten.mm.default: _multiply,
    _aten.bmm.default: _multiply,
    _aten.matmul.default: _multiply,
    _aten.div.Tensor: _divide,
    _aten.cat.default: _concatenate,
    _aten.constant_pad_nd.default: lambda emit, data, sides, value=0: None if value else _map_parts(emit, data, sides),
    **dict.fromkeys(
        (
            *(_aten.alias.default, _aten.clone.default, _aten.expand.default, _aten.flip.default),
            *(_aten.index.Tensor, _aten.index_select.default),
            *(_aten.mean.dim, _aten.neg.default, _aten.permute.default, _aten.reshape.default, _aten.roll.default),
            *(_aten.select.int, _aten.slice.Tensor, _aten.squeeze.dim, _aten.squeeze.dims, _aten.sum.dim_IntList),
            *(_aten.transpose.int, _aten.unsqueeze.default, _aten.view.default),
        ),
        _map_parts,
    ),
}
"""The rewrite of each operator on pairs; it returns None for calls that it does not support."""
