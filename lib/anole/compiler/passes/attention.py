"""Lower attention to its template's definition; slices, permutations and copies of its operands are read in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import prod
from typing import Any

import tvm
from tvm import ir, relax, sym, te, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.extract.passes.attention import ATTENTION
from anole.ir.mutators import operator_of, permuted_axes, resolve, rewrite, symbolic_extents, value_of
from anole.ir.nodes import with_values
from anole.ir.symbols import all_static, is_static, unbound_symbols, with_opaque_types
from anole.targets.shared.anchor import AXES, is_same_extent

Index = tuple[Any, ...]
Define = Callable[[ir.Call, Sequence[te.Tensor | tirx.Var], Sequence[te.Tensor], Sequence[Any]], tirx.PrimFunc]
"""Makes the function of a call, given its parameters, operands, each with one batch axis, and the result's shape."""


def lower_attention(module: tvm.IRModule, define: Define) -> tvm.IRModule:
    """Replace attention by calls of functions that `define` makes."""

    class Lowerer(_Lowerer):
        function_of = staticmethod(define)

    return rewrite(module, mutator(Lowerer))


@dataclass(frozen=True)
class _View:
    """A tensor whose elements are elements of a source, maybe scaled.

    Attributes:
        index: maps an index of the view to an index of the source.
    """

    source: ir.Expr
    index: Callable[[Index], Index] = lambda at: at
    scale: float = 1.0


class _Lowerer(PyExprMutator):  # type: ignore[misc]
    function_of: Define

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        if operator_of(call) != ATTENTION:
            return call
        queries, keys, values, _, _, *addends = call.args
        views = [self._view(operand) for operand in (queries, keys, values, *addends)]
        sources = list(dict.fromkeys(view.source for view in views))
        # With computed extents, TVM could not prove that the loops over operands and over the result agree.
        exprs = (*sources, queries, keys, values, *addends, call)
        types, originals = with_opaque_types([expr.ty for expr in exprs])
        *shapes, out_shape = (list(ty.shape) for ty in types)
        placeholders = {
            source: te.placeholder(shape, "float32", name="source")
            for source, shape in zip(sources, shapes, strict=False)
        }
        operands = [
            _read(view, shape, placeholders[view.source])
            for view, shape in zip(views, shapes[len(sources) :], strict=True)
        ]
        # Symbols that appear only inside expressions must be passed as arguments.
        symbols = unbound_symbols([*(source.ty for source in sources), call.ty])
        func = with_values(self.function_of(call, [*placeholders.values(), *symbols], operands, out_shape), originals)
        return relax.call_tir(self.builder_.add_func(func, "attention"), [*sources, *symbols], call.ty)

    def _view(self, expr: ir.Expr) -> _View:
        """Return an operand as a view of the tensor that it is a part, permutation or copy of."""
        value = resolve(self, expr)
        step = _SOURCES.get(operator_of(value))
        inner = None if step is None or value is None else step(value)
        if inner is None:
            return _View(expr)
        outer = self._view(inner.source)
        return _View(outer.source, lambda at: outer.index(inner.index(at)), outer.scale * inner.scale)


def _read(view: _View, shape: Sequence[Any], source: te.Tensor) -> te.Tensor:
    """Return a view with a shape as a tensor with one batch axis."""
    *batch, rows, columns = shape

    def element(b: Any, y: Any, x: Any) -> Any:
        analyzer = sym.Analyzer()
        for variable, extent in ((b, prod(batch)), (y, rows), (x, columns)):
            analyzer.bind(variable, ir.Range(0, extent))
        index = view.index((*_unflatten(b, batch), y, x))
        value = source[tuple(analyzer.simplify(axis) for axis in index)]
        return value if view.scale == 1.0 else value * tirx.const(view.scale, "float32")

    return te.compute((prod(batch), rows, columns), element, name="view")


def permute(call: ir.Call, result: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    """Permute the axes of a result, (batch, rows, columns), as a call says; its batch may have several axes."""
    axes = [int(axis) for axis in call.args[3].values]
    batch = [shape[axes.index(axis)] for axis in range(len(axes) - 2)]

    def element(*at: Any) -> Any:
        *outer, row, column = (at[axes.index(axis)] for axis in range(len(axes)))
        return result[_flatten(tuple(outer), batch), row, column]

    return te.compute(shape, element, name="permuted", attrs={AXES: axes})


def _unflatten(index: Any, shape: Sequence[Any]) -> Index:
    """Return the index of an element of a shape, given its position."""
    first, *others = (index // prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return (first, *(at % extent for at, extent in zip(others, shape[1:], strict=True)))


def _flatten(at: Index, shape: Sequence[int]) -> Any:
    return sum(i * prod(shape[axis + 1 :]) for axis, i in enumerate(at))


def _reshaped(call: ir.Call) -> _View | None:
    """Return a reshape as a view, unless its index needs divisions by varying extents."""
    source, shape = call.args[0], symbolic_extents(call)
    inner = symbolic_extents(source)
    first = _n_same(shape, inner)
    last = _n_same(shape[first:][::-1], inner[first:][::-1])
    middle = slice(first, len(shape) - last)
    rest = inner[first : len(inner) - last]
    if not all_static(rest[1:]):
        return None

    def index(at: Index) -> Index:
        moved = _unflatten(_flatten(at[middle], shape[middle]), rest) if rest else ()
        return (*at[:first], *moved, *at[len(shape) - last :])

    return _View(source, index)


def _n_same(left: Sequence[Any], right: Sequence[Any]) -> int:
    """Return the number of first extents that are equal."""
    return sum(1 for _ in takewhile(lambda pair: is_same_extent(*pair), zip(left, right, strict=False)))


def _permuted(call: ir.Call) -> _View:
    axes = permuted_axes(call)
    return _View(call.args[0], lambda at: tuple(at[axes.index(axis)] for axis in range(len(axes))))


def _broadcast(call: ir.Call) -> _View:
    shape = symbolic_extents(call.args[0])

    def index(at: Index) -> Index:
        inner = zip(at[len(at) - len(shape) :], shape, strict=True)
        return tuple(0 if is_static(extent) and extent == 1 else i for i, extent in inner)

    return _View(call.args[0], index)


def _sliced(call: ir.Call) -> _View | None:
    source, axes, begins, _, *strides = call.args
    rank, shape = len(source.ty.shape), symbolic_extents(source)
    if not all_static(shape[int(axis.value) % rank] for axis in axes.fields):
        return None
    starts, steps = [0] * rank, [1] * rank
    for position, axis in enumerate(axes.fields):
        at = int(axis.value) % rank
        begin = int(begins.fields[position].value)
        starts[at] = max(0, min(begin + shape[at] if begin < 0 else begin, shape[at]))
        steps[at] = int(strides[0].fields[position].value) if strides else 1
    if min(steps) < 1:
        return None
    return _View(source, lambda at: tuple(a + i * s for a, i, s in zip(starts, at, steps, strict=True)))


def _scaled(call: ir.Call) -> _View | None:
    source, factor = call.args[0], value_of(call.args[1])
    shapes = symbolic_extents(source), symbolic_extents(call)
    if factor is None or factor.size != 1 or _n_same(*shapes) < len(call.ty.shape):
        return None
    return _View(source, scale=float(factor.item()))


_SOURCES: dict[str, Callable[[ir.Call], _View | None]] = {
    "relax.reshape": _reshaped,
    "relax.squeeze": _reshaped,
    "relax.expand_dims": _reshaped,
    "relax.permute_dims": _permuted,
    "relax.broadcast_to": _broadcast,
    "relax.strided_slice": _sliced,
    "relax.multiply": _scaled,
}
"""The operators whose result is a view of their first operand."""
