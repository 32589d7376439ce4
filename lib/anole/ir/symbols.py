"""Symbolic shape extents: a symbol's name contains its size range, whose typical size serves as the size hint."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count, product
from math import isqrt
from typing import Any

import tvm_ffi
from tvm import relax, sym, tirx

from anole.ir.nodes import collect
from anole.ir.ranges import SizeRange

_SYMBOL_NAME = re.compile(r"(.+):(\d+\.\.\d+)")
"""A symbol's name and its range."""

_COMPUTED = "anole.computed_extents"
"""The function attribute that maps opaque symbols, named by the text of an extent, to the extents."""

_OPERATORS = {tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*", tirx.FloorDiv: "//", tirx.FloorMod: "%"}
_CALLS = {tirx.Min: "min", tirx.Max: "max", tirx.FloorDiv: "floordiv", tirx.FloorMod: "floormod"}


def symbol_of(name: str, sizes: SizeRange) -> tirx.Var:
    """Make a symbol with its size range in its name, since TVM preserves only the name when it copies symbols."""
    return tirx.Var(f"{name}:{sizes}", "int64")


def symbol_names(ranges: Mapping[str, SizeRange]) -> dict[str, SizeRange]:
    """Return the ranges by the names of their symbols in TVM instead of their own names."""
    return {str(symbol_of(name, sizes).name): sizes for name, sizes in ranges.items()}


def range_of(symbol: tirx.Var) -> SizeRange | None:
    """Return the range of a symbol made by `symbol_of`, or None for other variables."""
    match = _SYMBOL_NAME.fullmatch(str(symbol.name))
    return SizeRange.parse(match[2]) if match else None


def name_of(symbol: tirx.Var) -> str:
    """Return the name of a variable, without the range of a symbol."""
    match = _SYMBOL_NAME.fullmatch(str(symbol.name))
    return match[1] if match else str(symbol.name)


def is_small(symbols: Sequence[tirx.Var]) -> Any:
    """Return the condition that all symbols are at most the `small` size of their ranges."""
    return tirx.all(*(symbol <= sizes.small for symbol in symbols if (sizes := range_of(symbol)) is not None))


def size_hint(extent: Any, sizes: Mapping[str, int] | None = None) -> int | None:
    """Evaluate an extent at typical sizes, or at sizes given by name; return None if a variable has no size."""
    if isinstance(extent, (int, tirx.IntImm)):
        return int(extent)
    value = sym.Analyzer().simplify(tvm_ffi.structural_map(extent, (tirx.Var, partial(_substitute_size, sizes))))
    return int(value) if isinstance(value, tirx.IntImm) else None


def largest(extent: Any) -> int | None:
    """Return the maximum of an extent over the ends of its symbols' ranges, or None if it has other variables."""
    ranges = {name_of(symbol): range_of(symbol) for symbol in collect(extent, tirx.Var)}
    ends = [(range_.min, range_.max) for range_ in ranges.values() if range_ is not None]
    if len(ends) < len(ranges):
        return None
    values = [size_hint(extent, dict(zip(ranges, sizes, strict=True))) for sizes in product(*ends)]
    return max(value for value in values if value is not None)


def is_static(extent: Any) -> bool:
    """Whether an extent is a constant."""
    return isinstance(extent, (int, tirx.IntImm))


def all_static(extents: Iterable[Any]) -> bool:
    """Whether all extents are constants."""
    return all(map(is_static, extents))


def simplify(extent: Any) -> Any:
    """Simplify an extent."""
    return sym.Analyzer().simplify(extent)


def format_extent(extent: Any, calls: bool = False) -> str:
    """Format an extent as a Python expression, such as ``batch * 2``; TVM's printer renames some variables.

    Args:
        extent: the extent.
        calls: whether to write quotients and remainders as calls of `floordiv` and `floormod`, for other languages.
    """
    if isinstance(extent, (int, tirx.IntImm)):
        return str(int(extent))
    if isinstance(extent, tirx.Var):
        return name_of(extent)
    kind = type(extent)
    if kind not in {**_OPERATORS, **_CALLS}:
        return str(extent)
    sides = (extent.a, extent.b)
    texts = [format_extent(side, calls) for side in sides]
    if kind not in _OPERATORS or (calls and kind in _CALLS):
        return f"{_CALLS[kind]}({', '.join(texts)})"
    parts = (f"({text})" if type(side) in _OPERATORS else text for text, side in zip(texts, sides, strict=True))
    return f" {_OPERATORS[kind]} ".join(parts)


def varying_texts(shape: Iterable[Any], calls: bool = False) -> tuple[str | None, ...] | None:
    """Return the texts of dynamic extents, see `format_extent`, and None for static ones; None if all are static."""
    texts = tuple(None if is_static(extent) else format_extent(extent, calls) for extent in shape)
    return texts if any(texts) else None


def typical_shape(shape: Any, sizes: Mapping[str, int] | None = None) -> tuple[int, ...] | None:
    """Evaluate a shape at typical sizes, or at sizes given by name; return None if it is unknown."""
    hints = [size_hint(extent, sizes) for extent in shape] if shape is not None else [None]
    return tuple(extent for extent in hints if extent is not None) if None not in hints else None


def symbols_of(func: tirx.PrimFunc) -> list[tirx.Var]:
    """Return the distinct symbols in the shapes of a function's parameters."""
    return _symbols([param.ty for param in func.params])


def unbound_symbols(types: Sequence[Any]) -> list[tirx.Var]:
    """Return the symbols that occur only inside expressions, so they cannot be inferred from a tensor's shape."""
    extents = [extent for ty in types for extent in ty.shape]
    return [symbol for symbol in _symbols(types) if not any(symbol.same_as(extent) for extent in extents)]


def symbols_in(ty: Any) -> list[tirx.Var]:
    """Return the symbols in a type's shape, in order and with repetitions; empty for types without shape."""
    return [symbol for extent in getattr(ty, "shape", None) or () for symbol in collect(extent, tirx.Var)]


def _symbols(types: Sequence[Any]) -> list[tirx.Var]:
    return list({str(symbol.name): symbol for ty in types for symbol in symbols_in(ty)}.values())


def with_opaque_extents(func: tirx.PrimFunc, transform: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> tirx.PrimFunc:
    """Transform a function while each computed extent of its parameters is replaced by an opaque symbol.

    TVM cannot prove that ``(batch * 4 + 127) // 128 * 128`` is at least ``batch * 4``.
    """
    transformed = transform(name_opaque_extents(func))
    computed = computed_extents(transformed)
    return with_extents(transformed.without_attr(_COMPUTED), computed) if computed else transformed


def computed_extents(func: tirx.PrimFunc) -> dict[str, Any]:
    """Return the extents that `name_opaque_extents` replaced, by their text."""
    return dict(func.attrs[_COMPUTED]) if func.attrs and _COMPUTED in func.attrs else {}


def with_extents(node: Any, extents: Mapping[str, Any]) -> Any:
    """Replace symbols by the extents whose text is their name, in a function or expression."""
    return tvm_ffi.structural_map(node, (tirx.Var, lambda symbol: extents.get(str(symbol.name), symbol)))


def name_opaque_extents(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Replace each computed extent of a function's parameters by a symbol named by the extent's text."""
    computed = _find_computed([param.ty for param in func.params])
    if not computed:
        return func
    symbols = _make_symbols(computed)

    def replace(node: Any) -> Any:
        return next((symbols[text] for text, expr in computed.items() if tvm_ffi.structural_equal(expr, node)), node)

    kinds = tuple({type(extent) for extent in computed.values()})
    replaced = tvm_ffi.structural_map(func, (kinds, replace), order="pre")
    return replaced.with_attr(_COMPUTED, computed)


def with_opaque_types(types: Sequence[Any]) -> tuple[list[relax.TensorType], dict[tirx.Var, Any]]:
    """Replace computed extents of tensor types by symbols, and return the extent of each symbol, too."""
    computed = _find_computed(types)
    symbols = _make_symbols(computed)
    opaque = [
        relax.TensorType([symbols.get(format_extent(extent), extent) for extent in ty.shape], ty.dtype) for ty in types
    ]
    return opaque, {symbol: computed[text] for text, symbol in symbols.items()}


def _make_symbols(texts: Iterable[str]) -> dict[str, tirx.Var]:
    return {text: tirx.Var(text, "int64") for text in texts}


def _find_computed(types: Sequence[Any]) -> dict[str, Any]:
    """Return the extents that are neither constants nor symbols, by their text."""
    extents = [extent for ty in types for extent in getattr(ty, "shape", None) or ()]
    return {format_extent(extent): extent for extent in extents if not isinstance(extent, (tirx.IntImm, tirx.Var))}


def prime_sizes(func: tirx.PrimFunc) -> dict[str, int]:
    """Return a distinct prime above the typical size for each symbol, which no vector or thread count divides."""
    primes: dict[str, int] = {}
    for symbol in symbols_of(func):
        size = range_of(symbol)
        if size is not None:
            primes[name_of(symbol)] = next(
                n for n in count(size.typical + 1) if n not in primes.values() and _is_prime(n)
            )
    return primes


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, isqrt(number) + 1))


def at_sizes(func: tirx.PrimFunc, sizes: Mapping[str, int]) -> tirx.PrimFunc:
    """Substitute sizes for a function's symbols, by name."""
    symbols = symbols_of(func)
    if not symbols:
        return func

    def value(variable: tirx.Var) -> Any:
        is_symbol = any(variable.same_as(symbol) for symbol in symbols)
        return _substitute_size(sizes, variable) if is_symbol else variable

    # A symbol that occurs only inside expressions is a parameter, too.
    params = [param for param in func.params if not any(param.same_as(symbol) for symbol in symbols)]
    func = tirx.PrimFunc(params, func.body, attrs=func.attrs)
    return tvm_ffi.structural_map(func, [(tirx.Var, value), (tuple({**_OPERATORS, **_CALLS}), _fold)])


def _fold(operation: Any) -> Any:
    """Fold an operation on constants."""
    return simplify(operation) if all_static([operation.a, operation.b]) else operation


def _substitute_size(sizes: Mapping[str, int] | None, symbol: tirx.Var) -> Any:
    """Replace a symbol by its given or typical size; return other variables unchanged."""
    range_ = range_of(symbol) if sizes is None else None
    size = range_.typical if range_ is not None else (sizes or {}).get(name_of(symbol))
    return symbol if size is None else tirx.IntImm(symbol.ty.dtype, size)
