"""Extents that vary: symbols in shapes, and the usual sizes that stand for them wherever a number decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from math import isqrt
from typing import Any

import tvm_ffi
from tvm import relax, sym, tirx

_USUAL: ContextVar[Mapping[str, int]] = ContextVar("usual sizes")
_SMALL: ContextVar[Mapping[str, int]] = ContextVar("the largest small sizes")

_COMPUTED = "anole.computed_extents"
"""The attribute of a function that tells what stands behind symbols with the text of an extent as name."""

_OPERATORS = {tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*", tirx.FloorDiv: "//", tirx.FloorMod: "%"}


@contextmanager
def standing_for(sizes: Mapping[str, int], small: Mapping[str, int] | None = None) -> Iterator[None]:
    """Lets sizes stand for the symbols of these names meanwhile, of which sizes up to others are small."""
    tokens = [(_USUAL, _USUAL.set(sizes)), (_SMALL, _SMALL.set(small or {}))]
    try:
        yield
    finally:
        for variable, token in tokens:
            variable.reset(token)


def is_small(symbols: Sequence[tirx.Var]) -> Any:
    """Returns the condition that all symbols are small sizes."""
    return tirx.all(*(symbol <= _SMALL.get({}).get(str(symbol.name), 0) for symbol in symbols))


def is_known(symbol: tirx.Var) -> bool:
    """Returns whether a size stands for a symbol."""
    return str(symbol.name) in _USUAL.get({})


def usual(extent: Any) -> int | None:
    """Returns an extent with the usual sizes; None if it has symbols and nothing stands for them."""
    if isinstance(extent, (int, tirx.IntImm)):
        return int(extent)
    found = sym.Analyzer().simplify(tvm_ffi.structural_map(extent, (tirx.Var, _valued)))
    return int(found) if isinstance(found, tirx.IntImm) else None


def is_number(extent: Any) -> bool:
    """Returns whether an extent does not vary."""
    return isinstance(extent, (int, tirx.IntImm))


def are_numbers(extents: Iterable[Any]) -> bool:
    """Returns whether none of some extents varies."""
    return all(map(is_number, extents))


def simplified(extent: Any) -> Any:
    """Returns an extent, an expression, in its simplest form."""
    return sym.Analyzer().simplify(extent)


def text_of(extent: Any) -> str:
    """Returns an extent as people write it, such as ``batch * 2``; TVM may write other names."""
    if isinstance(extent, (int, tirx.IntImm)):
        return str(int(extent))
    if isinstance(extent, tirx.Var):
        return str(extent.name)
    if isinstance(extent, (tirx.Min, tirx.Max)):
        name = "min" if isinstance(extent, tirx.Min) else "max"
        return f"{name}({text_of(extent.a)}, {text_of(extent.b)})"
    operator = _OPERATORS.get(type(extent))
    if operator is None:
        return str(extent)
    parts = (f"({text_of(each)})" if type(each) in _OPERATORS else text_of(each) for each in (extent.a, extent.b))
    return f" {operator} ".join(parts)


def varying_texts(shape: Iterable[Any]) -> tuple[str | None, ...] | None:
    """Returns the extents of a shape that vary, as text, and None for all others; None if none does."""
    texts = tuple(None if is_number(extent) else text_of(extent) for extent in shape)
    return texts if any(texts) else None


def usual_shape(shape: Any) -> tuple[int, ...] | None:
    """Returns a shape with the usual sizes; None if it is not known."""
    found = [usual(extent) for extent in shape] if shape is not None else [None]
    return tuple(extent for extent in found if extent is not None) if None not in found else None


def symbols_of(func: tirx.PrimFunc) -> list[tirx.Var]:
    """Returns the symbols in the shapes of a function's parameters, each once."""
    return _symbols([param.ty for param in func.params])


def unbound_symbols(types: Sequence[Any]) -> list[tirx.Var]:
    """Returns the symbols of tensor types that are no extent by themselves, so that no tensor tells them."""
    extents = [extent for ty in types for extent in ty.shape]
    return [symbol for symbol in _symbols(types) if not any(symbol.same_as(extent) for extent in extents)]


def symbols_in(ty: Any) -> list[tirx.Var]:
    """Returns the symbols in a type's shape as often as they occur, in order; nothing for other types."""
    found: list[tirx.Var] = []
    for extent in getattr(ty, "shape", None) or ():
        tvm_ffi.structural_walk(extent, (tirx.Var, found.append))
    return found


def _symbols(types: Sequence[Any]) -> list[tirx.Var]:
    return list({str(symbol.name): symbol for ty in types for symbol in symbols_in(ty)}.values())


def in_plain_extents(func: tirx.PrimFunc, act: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> tirx.PrimFunc:
    """Returns what a function becomes if each extent of its parameters that is computed is a symbol meanwhile.

    TVM cannot tell that there are at least ``batch * 4`` in ``(batch * 4 + 127) // 128 * 128``.
    """
    found = act(with_plain_extents(func))
    computed = computed_extents(found)
    return with_extents(found.without_attr(_COMPUTED), computed) if computed else found


def computed_extents(func: tirx.PrimFunc) -> dict[str, Any]:
    """Returns the extents that `with_plain_extents` replaced, by their text."""
    return dict(func.attrs[_COMPUTED]) if func.attrs and _COMPUTED in func.attrs else {}


def with_extents(node: Any, extents: Mapping[str, Any]) -> Any:
    """Returns a function or an expression with extents instead of the symbols that are named as their text."""
    return tvm_ffi.structural_map(node, (tirx.Var, lambda each: extents.get(str(each.name), each)))


def with_plain_extents(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a function with a symbol for each extent of its parameters that is computed, by its text as name."""
    computed = _computed([param.ty for param in func.params])
    if not computed:
        return func
    symbols = {text: tirx.Var(text, "int64") for text in computed}

    def plain(each: Any) -> Any:
        return next((symbols[text] for text, own in computed.items() if tvm_ffi.structural_equal(own, each)), each)

    found = tvm_ffi.structural_map(func, (tuple({type(extent) for extent in computed.values()}), plain))
    return found.with_attr(_COMPUTED, computed)


def plain_types(types: Sequence[Any]) -> tuple[list[relax.TensorType], dict[tirx.Var, Any]]:
    """Returns tensor types with a symbol for each extent that is computed, and the extent of each such symbol."""
    computed = _computed(types)
    symbols = {text: tirx.Var(text, "int64") for text in computed}
    plain = [relax.TensorType([symbols.get(text_of(each), each) for each in ty.shape], ty.dtype) for ty in types]
    return plain, {symbol: computed[text] for text, symbol in symbols.items()}


def _computed(types: Sequence[Any]) -> dict[str, Any]:
    """Returns the extents that are neither a number nor a symbol, by their text."""
    extents = [extent for ty in types for extent in getattr(ty, "shape", None) or ()]
    return {text_of(each): each for each in extents if not isinstance(each, (tirx.IntImm, tirx.Var))}


def prime_sizes() -> dict[str, int]:
    """Returns a size for each symbol that no vector or thread divides: a prime of its own beyond the usual size."""
    found: dict[str, int] = {}
    for name, size in _USUAL.get({}).items():
        found[name] = next(n for n in count(size + 1) if n not in found.values() and _is_prime(n))
    return found


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, isqrt(number) + 1))


def of_usual_sizes(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a function with the usual sizes instead of its symbols; the function itself if it has none."""
    symbols = symbols_of(func)
    if not symbols:
        return func

    def value(variable: tirx.Var) -> Any:
        return _valued(variable) if any(variable.same_as(symbol) for symbol in symbols) else variable

    # A symbol that no extent is alone is a parameter, too.
    params = [param for param in func.params if not any(param.same_as(symbol) for symbol in symbols)]
    func = tirx.PrimFunc(params, func.body, attrs=func.attrs)
    return tvm_ffi.structural_map(func, [(tirx.Var, value), (tuple(_OPERATORS), _folded)])


def _folded(operation: Any) -> Any:
    """Returns the result of an operation on numbers, and any other operation as it is."""
    return simplified(operation) if are_numbers([operation.a, operation.b]) else operation


def _valued(symbol: tirx.Var) -> Any:
    """Returns the usual size of a symbol, and every other variable as it is."""
    size = _USUAL.get({}).get(str(symbol.name))
    return symbol if size is None else tirx.IntImm(symbol.ty.dtype, size)
