"""Extents that vary: symbols in shapes, and the usual sizes that stand for them wherever a number decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import tvm_ffi
from tvm import sym, tirx

_USUAL: ContextVar[Mapping[str, int]] = ContextVar("usual sizes")


@contextmanager
def standing_for(sizes: Mapping[str, int]) -> Iterator[None]:
    """Lets sizes stand for the symbols of these names meanwhile."""
    token = _USUAL.set(sizes)
    try:
        yield
    finally:
        _USUAL.reset(token)


def usual(extent: Any) -> int | None:
    """Returns an extent with the usual sizes; None if it has symbols and nothing stands for them."""
    if isinstance(extent, (int, tirx.IntImm)):
        return int(extent)
    found = sym.Analyzer().simplify(tvm_ffi.structural_map(extent, (tirx.Var, _valued)))
    return int(found) if isinstance(found, tirx.IntImm) else None


def simplified(extent: Any) -> Any:
    """Returns an extent, an expression, in its simplest form."""
    return sym.Analyzer().simplify(extent)


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


def _symbols(types: Sequence[Any]) -> list[tirx.Var]:
    found: list[tirx.Var] = []
    for ty in types:
        for extent in getattr(ty, "shape", None) or ():
            tvm_ffi.structural_walk(extent, (tirx.Var, found.append))
    return list({str(symbol.name): symbol for symbol in found}.values())


def of_usual_sizes(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a function with the usual sizes instead of its symbols; the function itself if it has none."""
    symbols = symbols_of(func)
    if not symbols:
        return func

    def value(variable: tirx.Var) -> Any:
        return _valued(variable) if any(variable.same_as(symbol) for symbol in symbols) else variable

    # A symbol that no extent is alone is a parameter, too.
    params = [param for param in func.params if not any(param.same_as(symbol) for symbol in symbols)]
    return tvm_ffi.structural_map(tirx.PrimFunc(params, func.body, attrs=func.attrs), (tirx.Var, value))


def _valued(symbol: tirx.Var) -> Any:
    """Returns the usual size of a symbol, and every other variable as it is."""
    size = _USUAL.get({}).get(str(symbol.name))
    return symbol if size is None else tirx.IntImm(symbol.ty.dtype, size)
