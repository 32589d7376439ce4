"""Words of 32 bits that hold several narrow numbers, and their dot products, as TensorIR expressions.

A dot product is an operator of its own, which takes part in vectors like a multiplication; what lowers a kernel puts
the processor's instruction in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm.ir._ffi_api
from tvm import ir, tirx

from anole.task import Workload, sum_dtype, weight_dtype, weight_scheme

_PURE = 1

DOTS = {
    "bfloat16x2": ("anole.dot_bfloat16x2", "float32"),
    "uint8x4": ("anole.dot_uint8x4", "int32"),
    "uint8x1": ("anole.dot_uint8x1", "int32"),
}
"""The operators of dot products of two words, and the types of their results, by the type of the words.

A word of four uint8 is multiplied with one of four int8, and one uint8 in its lowest bits with an int8 in 32 bits.
"""

for _name, _ in DOTS.values():
    tvm.ir._ffi_api.RegisterOp(_name, "The sum of the products of the numbers in two words.")
    ir.register_op_attr(_name, "TCallEffectKind", _PURE)
    ir.register_op_attr(_name, "TVectorizable", True)


def product(dtype: str, left: Any, right: Any) -> Any:
    """Return the product of two numbers, or the dot product of two words, of a type."""
    if dtype not in DOTS:
        return left * right
    operator, result = DOTS[dtype]
    return ir.Call(ir.Op.get(operator), [left, right], ret_ty=ir.PrimType(result))


def is_dot(call: Any) -> bool:
    """Whether a call is a dot product of two words."""
    return any(getattr(call.op, "name", None) == operator for operator, _ in DOTS.values())


def is_word(call: Any) -> bool:
    """Whether a call reads a word, see `word_of`."""
    named = getattr(getattr(call, "op", None), "name", None)
    return named == "tirx.reinterpret" and isinstance(call.args[0], tirx.Shuffle)


def first_number(word: Any) -> Any:
    """Return the load of a word, or that of its first number."""
    return word.args[0].vectors[0] if is_word(word) else word


def packed_dtype(workload: Workload) -> str:
    """Return the type of a workload's second operand: words of narrow constants, or what computed numbers have."""
    if not workload.constant_weight:
        return weight_dtype(workload.dtype)
    is_plain = weight_scheme(workload) is None and sum_dtype(workload.dtype) == workload.dtype
    return workload.dtype if is_plain else "int32"


def word_of(numbers: Sequence[Any]) -> Any:
    """Return the word that holds numbers, which lie one after another in memory, the first in its lowest bits."""
    return tirx.reinterpret("int32", tirx.Shuffle(list(numbers), list(range(len(numbers)))))
