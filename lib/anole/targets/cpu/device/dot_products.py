"""Lowering of packed 32-bit words: loads directly from memory, and the CPU's dot product instructions.

The instruction sets differ only in the types and vector widths of their dot products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, sym, tirx
from tvm.target.codegen import llvm_version_major, target_has_features

from anole.ir.nodes import collect, map_nodes
from anole.targets.shared.packed_words import DOTS, is_dot, is_packed_word

_OPERATORS = {operator: dtype for dtype, (operator, _) in DOTS.items()}


@dataclass(frozen=True)
class _Dot:
    """A CPU's dot product of vectors of packed words, added to an accumulator.

    Attributes:
        features: the alternative sets of required features, by LLVM's names.
        code: LLVM code that defines the dot product's function, since TensorIR does not support vectors of some types.
    """

    features: tuple[frozenset[str], ...]
    code: str


def _helper(dtype: str, lanes: int) -> str:
    return f"anole_dot_{dtype}_{lanes}"


def _code(dtype: str, lanes: int, declared: str, operands: str, steps: str) -> str:
    """Return the code of a function of accumulators and two vectors of packed words, %a and %b in the steps."""
    result_type, packed = f"<{lanes} x {'float' if dtype == 'bfloat16x2' else 'i32'}>", f"<{lanes} x i32>"
    return f"""
declare {declared}
define {result_type} @{_helper(dtype, lanes)}({result_type} %sum, {packed} %left, {packed} %right) {{
  %a = bitcast {packed} %left to {operands}
  %b = bitcast {packed} %right to {operands}
{steps}
  ret {result_type} %result
}}
"""


def _dot_by_instruction(dtype: str, lanes: int, name: str, operands: str, *features: str) -> _Dot:
    """Return the dot product of one instruction; each string in `features` is an alternative set."""
    result_type = f"<{lanes} x {'float' if dtype == 'bfloat16x2' else 'i32'}>"
    steps = f"  %result = call {result_type} @{name}({result_type} %sum, {operands} %a, {operands} %b)"
    code = _code(dtype, lanes, f"{result_type} @{name}({result_type}, {operands}, {operands})", operands, steps)
    return _Dot(tuple(frozenset(names.split()) for names in features), code)


def _dot_by_pairs(lanes: int, name: str, feature: str) -> _Dot:
    """Return an exact 8-bit dot product from two 16-bit dot products; the 8-bit instruction (pmaddubsw) saturates."""
    packed, halves = f"<{lanes} x i32>", f"<{2 * lanes} x i16>"
    steps = f"""\
  %a.even = and {halves} %a, splat (i16 255)
  %a.odd = lshr {halves} %a, splat (i16 8)
  %b.high = shl {halves} %b, splat (i16 8)
  %b.even = ashr {halves} %b.high, splat (i16 8)
  %b.odd = ashr {halves} %b, splat (i16 8)
  %even = call {packed} @{name}({halves} %a.even, {halves} %b.even)
  %odd = call {packed} @{name}({halves} %a.odd, {halves} %b.odd)
  %both = add {packed} %even, %odd
  %result = add {packed} %sum, %both"""
    return _Dot(
        (frozenset({feature}),), _code("uint8x4", lanes, f"{packed} @{name}({halves}, {halves})", halves, steps)
    )


def _dot_by_one_pair(lanes: int, name: str, feature: str) -> _Dot:
    """Return the product of one byte per word, held in its lower 16-bit half; the upper half of the data is zero."""
    packed, halves = f"<{lanes} x i32>", f"<{2 * lanes} x i16>"
    steps = f"""\
  %product = call {packed} @{name}({halves} %a, {halves} %b)
  %result = add {packed} %sum, %product"""
    return _Dot(
        (frozenset({feature}),), _code("uint8x1", lanes, f"{packed} @{name}({halves}, {halves})", halves, steps)
    )


def _vnni_dot(dtype: str, lanes: int, *features: str) -> _Dot:
    """Return VNNI's dot product; before LLVM 22, its operands are vectors of i32."""
    operands = f"<{4 * lanes} x i8>" if llvm_version_major() >= 22 else f"<{lanes} x i32>"
    return _dot_by_instruction(dtype, lanes, f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", operands, *features)


def _bf16_dot(lanes: int) -> _Dot:
    """Return AVX-512 BF16's dot product, which rounds after each of its two products."""
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
    return _dot_by_instruction("bfloat16x2", lanes, name, f"<{2 * lanes} x bfloat>", "avx512bf16 avx512vl")


_DOTS: dict[tuple[str, int], tuple[_Dot, ...]] = {
    **{("bfloat16x2", lanes): (_bf16_dot(lanes),) for lanes in (4, 8, 16)},
    **{
        (dtype, lanes): (_vnni_dot(dtype, lanes, *vnni), by_pairs(lanes, f"llvm.x86.{pairs}", feature))
        for dtype, by_pairs in (("uint8x4", _dot_by_pairs), ("uint8x1", _dot_by_one_pair))
        for lanes, vnni, pairs, feature in (
            (4, ("avx512vnni avx512vl", "avxvnni"), "sse2.pmadd.wd", "sse2"),
            (8, ("avx512vnni avx512vl", "avxvnni"), "avx2.pmadd.wd", "avx2"),
            (16, ("avx512vnni",), "avx512.pmaddw.d.512", "avx512bw"),
        )
    },
}
"""The CPUs' dot products, fastest first, by the type of packed words and their number per vector."""


def has_packed_words(func: tirx.PrimFunc) -> bool:
    """Whether a function reads packed words."""
    return any(is_packed_word(call) or is_dot(call) for call in collect(func.body, ir.Call))


def load_packed_words(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    """Replace packed words by int32 loads from views of the flat buffers that contain them."""
    views: dict[Any, Any] = {}
    analyzer = sym.Analyzer()

    def load_word(call: ir.Call) -> Any:
        if not is_packed_word(call):
            return call
        elements = list(call.args[0].vectors)
        buffer, (first,) = elements[0].source, elements[0].indices
        if buffer not in views:
            extent = analyzer.simplify(tirx.floordiv(buffer.shape[0], len(elements)))
            views[buffer] = tirx.decl_buffer((extent,), "int32", f"{buffer.name}_words", data=buffer.data)
        return tirx.BufferLoad(views[buffer], [analyzer.simplify(tirx.floordiv(first, len(elements)))])

    func = map_nodes(func, ir.Call, load_word)

    def declare_view(statement: tirx.DeclBuffer) -> tirx.Stmt:
        view = views.get(statement.buffer)
        if view is None:
            return statement
        return tirx.SeqStmt([statement, tirx.DeclBuffer(view, data=statement.data)])

    return map_nodes(func, tirx.DeclBuffer, declare_view)


def lower_dots(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    """Replace additions of dot products by the CPU's instruction, or by scalar operations if it has none."""
    target, functions = func.attrs.get("target") if func.attrs else None, dict[str, str]()

    def add_dot(addition: tirx.Add) -> Any:
        total, call = addition.a, addition.b
        dtype = _OPERATORS.get(getattr(getattr(call, "op", None), "name", ""))
        if dtype is None:
            return addition
        left, right = call.args
        lanes = tvm.DataType(str(left.ty.dtype)).lanes
        dot = next((dot for dot in _DOTS.get((dtype, lanes), ()) if _supports(target, dot)), None)
        if dot is None:
            return _DEFINITIONS[dtype](total, left, right)
        functions[_helper(dtype, lanes)] = dot.code
        return tirx.call_pure_extern(str(total.ty.dtype), _helper(dtype, lanes), total, left, right)

    func = map_nodes(func, tirx.Add, add_dot)
    for code in functions.values():
        func = func.with_body(tirx.AttrStmt(0, "pragma_import_llvm", ir.StringImm(code), func.body))
    return func


def _supports(target: Any, dot: _Dot) -> bool:
    return target is not None and any(all(target_has_features(n, target) for n in names) for names in dot.features)


def _add_bfloat16_products(total: Any, left: Any, right: Any) -> Any:
    """Add the products of two bfloat16 pairs to an accumulator; a bfloat16 is the upper half of a float32."""
    dtype = str(total.ty.dtype)

    def halves(word: Any) -> tuple[Any, Any]:
        low = tirx.reinterpret(dtype, word << tirx.const(16, str(word.ty.dtype)))
        return low, tirx.reinterpret(dtype, word & tirx.const(-65536, str(word.ty.dtype)))

    (low, high), (other_low, other_high) = halves(left), halves(right)
    return total + low * other_low + high * other_high


def _add_byte_products(total: Any, left: Any, right: Any) -> Any:
    """Add the products of four uint8 and four int8 to an accumulator."""
    dtype = str(total.ty.dtype)
    for bits in range(0, 32, 8):
        unsigned = (left >> tirx.const(bits, dtype)) & tirx.const(255, dtype)
        total = total + unsigned * ((right << tirx.const(24 - bits, dtype)) >> tirx.const(24, dtype))
    return total


_DEFINITIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "bfloat16x2": _add_bfloat16_products,
    "uint8x4": _add_byte_products,
    "uint8x1": lambda total, left, right: total + left * right,
}
"""The definition of an accumulator plus a dot product, by the type of packed words."""
