"""Lowers words of narrow numbers: reads of words where they lie in memory, and dot products by the processor's own.

The instruction sets differ only in which dot product of how many lanes they have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, sym, tirx
from tvm.target.codegen import target_has_features

from anole.targets.shared.nodes import collect, with_each
from anole.targets.shared.words import DOTS

_OPERATORS = {operator: dtype for dtype, (operator, _) in DOTS.items()}


@dataclass(frozen=True)
class _Dot:
    """A processor's dot product of vectors of words with a sum to add to.

    Attributes:
        features: what the processor must have, in LLVM's words.
        code: LLVM code that defines its function, for TensorIR has no vectors of some types.
    """

    features: tuple[str, ...]
    code: str


def _bfloat16_dot(lanes: int) -> _Dot:
    """Returns the dot product of vectors of two bfloat16 each; the sum of both products is rounded once."""
    name, bits = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}", f"<{2 * lanes} x bfloat>"
    sums, words = f"<{lanes} x float>", f"<{lanes} x i32>"
    code = f"""
declare {sums} @{name}({sums}, {bits}, {bits})
define {sums} @{_helper("bfloat16x2", lanes)}({sums} %sum, {words} %left, {words} %right) {{
  %a = bitcast {words} %left to {bits}
  %b = bitcast {words} %right to {bits}
  %result = call {sums} @{name}({sums} %sum, {bits} %a, {bits} %b)
  ret {sums} %result
}}
"""
    return _Dot(("avx512bf16", "avx512vl"), code)


def _helper(dtype: str, lanes: int) -> str:
    return f"anole_dot_{dtype}_{lanes}"


_DOTS: dict[tuple[str, int], _Dot] = {("bfloat16x2", lanes): _bfloat16_dot(lanes) for lanes in (4, 8, 16)}
"""The dot products that processors have, by the type of the words and the number of lanes."""


def has_words(func: tirx.PrimFunc) -> bool:
    """Returns whether a function reads words of narrow numbers."""
    return any(getattr(call.op, "name", None) in _OPERATORS for call in collect(func.body, ir.Call))


def read_words(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    """Reads words as numbers of 32 bits from views of the flat buffers in which they lie."""
    views: dict[Any, Any] = {}
    analyzer = sym.Analyzer()

    def read(call: ir.Call) -> Any:
        if getattr(call.op, "name", None) != "tirx.reinterpret" or not isinstance(call.args[0], tirx.Shuffle):
            return call
        numbers = list(call.args[0].vectors)
        buffer, (first,) = numbers[0].source, numbers[0].indices
        if buffer not in views:
            words = int(buffer.shape[0]) // len(numbers)
            views[buffer] = tirx.decl_buffer((words,), "int32", f"{buffer.name}_words", data=buffer.data)
        return tirx.BufferLoad(views[buffer], [analyzer.simplify(tirx.floordiv(first, len(numbers)))])

    func = with_each(func, ir.Call, read)

    def declared(statement: tirx.DeclBuffer) -> tirx.Stmt:
        view = views.get(statement.buffer)
        if view is None:
            return statement
        return tirx.SeqStmt([statement, tirx.DeclBuffer(view, data=statement.data)])

    return with_each(func, tirx.DeclBuffer, declared)


def lower_dots(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    """Replaces sums with dot products by the processor's instruction, or by what defines them where it has none."""
    target, used = func.attrs.get("target") if func.attrs else None, dict[str, str]()

    def added(addition: tirx.Add) -> Any:
        total, call = addition.a, addition.b
        dtype = _OPERATORS.get(getattr(getattr(call, "op", None), "name", ""))
        if dtype is None:
            return addition
        left, right = call.args
        lanes = tvm.DataType(str(left.ty.dtype)).lanes
        dot = _DOTS.get((dtype, lanes))
        if dot is None or target is None or not all(target_has_features(name, target) for name in dot.features):
            return _DEFINITIONS[dtype](total, left, right)
        used[_helper(dtype, lanes)] = dot.code
        return tirx.call_pure_extern(str(total.ty.dtype), _helper(dtype, lanes), total, left, right)

    func = with_each(func, tirx.Add, added)
    for code in used.values():
        func = func.with_body(tirx.AttrStmt(0, "pragma_import_llvm", ir.StringImm(code), func.body))
    return func


def _bfloat16_sum(total: Any, left: Any, right: Any) -> Any:
    """Returns a sum with the products of two bfloat16, each of which is the upper half of a float32."""
    dtype = str(total.ty.dtype)

    def both(word: Any) -> tuple[Any, Any]:
        low = tirx.reinterpret(dtype, word << tirx.const(16, str(word.ty.dtype)))
        return low, tirx.reinterpret(dtype, word & tirx.const(-65536, str(word.ty.dtype)))

    (low, high), (other_low, other_high) = both(left), both(right)
    return total + low * other_low + high * other_high


_DEFINITIONS: dict[str, Callable[[Any, Any, Any], Any]] = {"bfloat16x2": _bfloat16_sum}
"""What a sum with a dot product is, by the type of the words."""
