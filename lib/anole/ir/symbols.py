"""Symbolic extents of shapes: each symbol's name holds its range, whose typical size decides wherever a number must."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count, product
from math import isqrt
from typing import Any

import tvm_ffi
from tvm import relax, sym, tirx

from anole.ir.ranges import SizeRange

_RANGED = re.compile(r"(.+):(\d+\.\.\d+)")
"""The name of a symbol: its own, and its range."""

_COMPUTED = "anole.computed_extents"
"""The attribute of a function that tells what stands behind symbols with the text of an extent as name."""

_OPERATORS = {tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*", tirx.FloorDiv: "//", tirx.FloorMod: "%"}
_CALLS = {tirx.Min: "min", tirx.Max: "max", tirx.FloorDiv: "floordiv", tirx.FloorMod: "floormod"}


def symbol_of(name: str, sizes: SizeRange) -> tirx.Var:
    """Return a symbol with a name and a range of sizes; TVM copies symbols, and keeps of them only their names."""
    return tirx.Var(f"{name}:{sizes}", "int64")


def symbol_names(ranges: Mapping[str, SizeRange]) -> dict[str, SizeRange]:
    """Return ranges by the names of their symbols in TVM, given them by their own names."""
    return {str(symbol_of(name, sizes).name): sizes for name, sizes in ranges.items()}


def range_of(symbol: tirx.Var) -> SizeRange | None:
    """Return the sizes of a symbol that `symbol_of` made; None for other variables."""
    found = _RANGED.fullmatch(str(symbol.name))
    return SizeRange.parse(found[2]) if found else None


def name_of(symbol: tirx.Var) -> str:
    """Return the name of a variable, without the range of a symbol."""
    found = _RANGED.fullmatch(str(symbol.name))
    return found[1] if found else str(symbol.name)


def is_small(symbols: Sequence[tirx.Var]) -> Any:
    """Return the condition that all symbols are small sizes of their ranges."""
    return tirx.all(*(symbol <= found.small for symbol in symbols if (found := range_of(symbol)) is not None))


def size_hint(extent: Any, sizes: Mapping[str, int] | None = None) -> int | None:
    """Return an extent at typical sizes, or at given ones, by name; None if it has a variable without a range."""
    if isinstance(extent, (int, tirx.IntImm)):
        return int(extent)
    found = sym.Analyzer().simplify(tvm_ffi.structural_map(extent, (tirx.Var, partial(_valued, sizes))))
    return int(found) if isinstance(found, tirx.IntImm) else None


def largest(extent: Any) -> int | None:
    """Return the largest value of an extent at the ends of its symbols' ranges; None if it has other variables."""
    ranges = {name_of(symbol): range_of(symbol) for symbol in _variables(extent)}
    ends = [(each.min, each.max) for each in ranges.values() if each is not None]
    if len(ends) < len(ranges):
        return None
    found = [size_hint(extent, dict(zip(ranges, sizes, strict=True))) for sizes in product(*ends)]
    return max(value for value in found if value is not None)


def is_static(extent: Any) -> bool:
    """Whether an extent does not vary."""
    return isinstance(extent, (int, tirx.IntImm))


def all_static(extents: Iterable[Any]) -> bool:
    """Whether none of some extents varies."""
    return all(map(is_static, extents))


def simplified(extent: Any) -> Any:
    """Return an extent, an expression, in its simplest form."""
    return sym.Analyzer().simplify(extent)


def text_of(extent: Any, calls: bool = False) -> str:
    """Return an extent as Python has it, such as ``batch * 2``; TVM changes some names where it prints them.

    Args:
        extent: the extent.
        calls: whether quotients and remainders are calls of `floordiv` and `floormod`, for other languages.
    """
    if isinstance(extent, (int, tirx.IntImm)):
        return str(int(extent))
    if isinstance(extent, tirx.Var):
        return name_of(extent)
    kind = type(extent)
    if kind not in {**_OPERATORS, **_CALLS}:
        return str(extent)
    sides = (extent.a, extent.b)
    texts = [text_of(each, calls) for each in sides]
    if kind not in _OPERATORS or (calls and kind in _CALLS):
        return f"{_CALLS[kind]}({', '.join(texts)})"
    parts = (f"({text})" if type(each) in _OPERATORS else text for text, each in zip(texts, sides, strict=True))
    return f" {_OPERATORS[kind]} ".join(parts)


def varying_texts(shape: Iterable[Any], calls: bool = False) -> tuple[str | None, ...] | None:
    """Return the texts of the extents that vary, see `text_of`, and None for all others; None if none does."""
    texts = tuple(None if is_static(extent) else text_of(extent, calls) for extent in shape)
    return texts if any(texts) else None


def typical_shape(shape: Any, sizes: Mapping[str, int] | None = None) -> tuple[int, ...] | None:
    """Return a shape at typical sizes, or at given ones, by name; None if it is not known."""
    found = [size_hint(extent, sizes) for extent in shape] if shape is not None else [None]
    return tuple(extent for extent in found if extent is not None) if None not in found else None


def symbols_of(func: tirx.PrimFunc) -> list[tirx.Var]:
    """Return the symbols in the shapes of a function's parameters, each once."""
    return _symbols([param.ty for param in func.params])


def unbound_symbols(types: Sequence[Any]) -> list[tirx.Var]:
    """Return the symbols of tensor types that are no extent by themselves, so that no tensor tells them."""
    extents = [extent for ty in types for extent in ty.shape]
    return [symbol for symbol in _symbols(types) if not any(symbol.same_as(extent) for extent in extents)]


def symbols_in(ty: Any) -> list[tirx.Var]:
    """Return the symbols in a type's shape as often as they occur, in order; nothing for other types."""
    return [symbol for extent in getattr(ty, "shape", None) or () for symbol in _variables(extent)]


def _variables(extent: Any) -> list[tirx.Var]:
    found: list[tirx.Var] = []
    tvm_ffi.structural_walk(extent, (tirx.Var, found.append))
    return found


def _symbols(types: Sequence[Any]) -> list[tirx.Var]:
    return list({str(symbol.name): symbol for ty in types for symbol in symbols_in(ty)}.values())


def with_opaque_extents(func: tirx.PrimFunc, act: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> tirx.PrimFunc:
    """Return what a function becomes if, while it is changed, each computed extent of its parameters is a symbol.

    TVM cannot tell that there are at least ``batch * 4`` in ``(batch * 4 + 127) // 128 * 128``.
    """
    found = act(with_opaque_extents_named(func))
    computed = computed_extents(found)
    return with_extents(found.without_attr(_COMPUTED), computed) if computed else found


def computed_extents(func: tirx.PrimFunc) -> dict[str, Any]:
    """Return the extents that `with_opaque_extents_named` replaced, by their text."""
    return dict(func.attrs[_COMPUTED]) if func.attrs and _COMPUTED in func.attrs else {}


def with_extents(node: Any, extents: Mapping[str, Any]) -> Any:
    """Return a function or an expression with extents instead of the symbols that are named as their text."""
    return tvm_ffi.structural_map(node, (tirx.Var, lambda each: extents.get(str(each.name), each)))


def with_opaque_extents_named(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function with a symbol for each extent of its parameters that is computed, by its text as name."""
    computed = _computed([param.ty for param in func.params])
    if not computed:
        return func
    symbols = _symbols_for(computed)

    def plain(each: Any) -> Any:
        return next((symbols[text] for text, own in computed.items() if tvm_ffi.structural_equal(own, each)), each)

    kinds = tuple({type(extent) for extent in computed.values()})
    found = tvm_ffi.structural_map(func, (kinds, plain), order="pre")
    return found.with_attr(_COMPUTED, computed)


def plain_types(types: Sequence[Any]) -> tuple[list[relax.TensorType], dict[tirx.Var, Any]]:
    """Return tensor types with a symbol for each extent that is computed, and the extent of each such symbol."""
    computed = _computed(types)
    symbols = _symbols_for(computed)
    plain = [relax.TensorType([symbols.get(text_of(each), each) for each in ty.shape], ty.dtype) for ty in types]
    return plain, {symbol: computed[text] for text, symbol in symbols.items()}


def _symbols_for(texts: Iterable[str]) -> dict[str, tirx.Var]:
    return {text: tirx.Var(text, "int64") for text in texts}


def _computed(types: Sequence[Any]) -> dict[str, Any]:
    """Return the extents that are neither a number nor a symbol, by their text."""
    extents = [extent for ty in types for extent in getattr(ty, "shape", None) or ()]
    return {text_of(each): each for each in extents if not isinstance(each, (tirx.IntImm, tirx.Var))}


def prime_sizes(func: tirx.PrimFunc) -> dict[str, int]:
    """Return a size for each symbol that no vector or thread divides: a prime of its own beyond the typical size."""
    found: dict[str, int] = {}
    for symbol in symbols_of(func):
        size = range_of(symbol)
        if size is not None:
            found[name_of(symbol)] = next(
                n for n in count(size.typical + 1) if n not in found.values() and _is_prime(n)
            )
    return found


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, isqrt(number) + 1))


def at_sizes(func: tirx.PrimFunc, sizes: Mapping[str, int]) -> tirx.PrimFunc:
    """Return a function with sizes instead of the symbols of these names; the function itself if it has none."""
    symbols = symbols_of(func)
    if not symbols:
        return func

    def value(variable: tirx.Var) -> Any:
        is_symbol = any(variable.same_as(symbol) for symbol in symbols)
        return _valued(sizes, variable) if is_symbol else variable

    # A symbol that no extent is alone is a parameter, too.
    params = [param for param in func.params if not any(param.same_as(symbol) for symbol in symbols)]
    func = tirx.PrimFunc(params, func.body, attrs=func.attrs)
    return tvm_ffi.structural_map(func, [(tirx.Var, value), (tuple({**_OPERATORS, **_CALLS}), _folded)])


def _folded(operation: Any) -> Any:
    """Return the result of an operation on numbers, and any other operation as it is."""
    return simplified(operation) if all_static([operation.a, operation.b]) else operation


def _valued(sizes: Mapping[str, int] | None, symbol: tirx.Var) -> Any:
    """Return the size of a symbol, by default the typical one, and every other variable as it is."""
    own = range_of(symbol) if sizes is None else None
    size = own.typical if own is not None else (sizes or {}).get(name_of(symbol))
    return symbol if size is None else tirx.IntImm(symbol.ty.dtype, size)
