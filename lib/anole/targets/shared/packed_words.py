"""Packed 32-bit words (four 8-bit integers or two bfloat16 each) and their dot products, as TensorIR.

A dot product is a separate operator, vectorized like a multiplication; lowering replaces the operator by the CPU's
instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm.ir._ffi_api
from tvm import ir, tirx

from anole.task import Workload, accumulator_dtype, weight_dtype, weight_scheme

_PURE = 1

DOTS = {
    "bfloat16x2": ("anole.dot_bfloat16x2", "float32"),
    "uint8x4": ("anole.dot_uint8x4", "int32"),
    "uint8x1": ("anole.dot_uint8x1", "int32"),
}
"""The dot product operators and their result types, by the type of a packed word.

``uint8x4`` multiplies four uint8 with four int8; ``uint8x1`` one uint8, in the lowest bits, with an int8 held as int32.
"""

for _name, _ in DOTS.values():
    tvm.ir._ffi_api.RegisterOp(_name, "The dot product of two packed 32-bit words.")
    ir.register_op_attr(_name, "TCallEffectKind", _PURE)
    ir.register_op_attr(_name, "TVectorizable", True)


def product(dtype: str, left: Any, right: Any) -> Any:
    """Return the product of two values, or the dot product of two packed words, of a type."""
    if dtype not in DOTS:
        return left * right
    operator, result = DOTS[dtype]
    return ir.Call(ir.Op.get(operator), [left, right], ret_ty=ir.PrimType(result))


def is_dot(call: Any) -> bool:
    """Whether a call is a dot product of two packed words."""
    return any(getattr(call.op, "name", None) == operator for operator, _ in DOTS.values())


def is_packed_word(call: Any) -> bool:
    """Whether an expression is a packed word made by `pack_word`."""
    name = getattr(getattr(call, "op", None), "name", None)
    return name == "tirx.reinterpret" and isinstance(call.args[0], tirx.Shuffle)


def first_element(word: Any) -> Any:
    """Return the load of a packed word's first element, or the operand itself if it is not a packed word."""
    return word.args[0].vectors[0] if is_packed_word(word) else word


def packed_dtype(workload: Workload) -> str:
    """Return the type of a workload's packed second operand: int32 for packed low-precision constants."""
    if not workload.constant_weight:
        return weight_dtype(workload.dtype)
    is_plain = weight_scheme(workload) is None and accumulator_dtype(workload.dtype) == workload.dtype
    return workload.dtype if is_plain else "int32"


def pack_word(elements: Sequence[Any]) -> Any:
    """Pack contiguous loads into a 32-bit word, the first in its lowest bits."""
    return tirx.reinterpret("int32", tirx.Shuffle(list(elements), list(range(len(elements)))))
