"""Rounding of float32 to bfloat16 by LLVM, which uses the CPU's instruction if there is one.

TVM rounds with integer operations that contain the operand twice, which defines variables within it twice.
"""

from __future__ import annotations

import re
from typing import Any

import tvm
import tvm.ir._ffi_api
from tvm import ir, tirx
from tvm.target.codegen import target_has_features

from anole.ir.nodes import map_nodes

_OPERATOR, _PURE = "anole.round_bfloat16", 1

tvm.ir._ffi_api.RegisterOp(_OPERATOR, "The bits of the nearest bfloat16.")
ir.register_op_attr(_OPERATOR, "TCallEffectKind", _PURE)
ir.register_op_attr(_OPERATOR, "TVectorizable", True)


def name_roundings(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    """Replace casts to bfloat16 by an operator, before TVM lowers them."""
    return map_nodes(func, tirx.Cast, _name_rounding)


def _name_rounding(cast: tirx.Cast) -> Any:
    if str(cast.ty.dtype) != "bfloat16" or str(cast.value.ty.dtype) != "float32":
        return cast
    bits = ir.Call(ir.Op.get(_OPERATOR), [cast.value], ret_ty=ir.PrimType("uint16"))
    return tirx.reinterpret("bfloat16", bits)


def lower_roundings(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    """Replace the operator, now vectorized, by LLVM's conversion or, without the instruction, integer operations."""
    target, functions = func.attrs.get("target") if func.attrs else None, dict[str, str]()
    has_instruction = target is not None and all(
        target_has_features(feature, target) for feature in ("avx512bf16", "avx512vl")
    )

    def lower_rounding(call: ir.Call) -> Any:
        if getattr(call.op, "name", None) != _OPERATOR:
            return call
        lanes = tvm.DataType(str(call.args[0].ty.dtype)).lanes
        name = f"anole_round_bfloat16_{lanes}"
        functions[name] = _code(name, lanes, _CONVERSION if has_instruction else _DEFINITION)
        return tirx.call_pure_extern(str(call.ty.dtype), name, *call.args)

    func = map_nodes(func, ir.Call, lower_rounding)
    for code in functions.values():
        func = func.with_body(tirx.AttrStmt(0, "pragma_import_llvm", ir.StringImm(code), func.body))
    return func


_CONVERSION = """
  %rounded = fptrunc FLOAT %x to BFLOAT
  %bits = bitcast BFLOAT %rounded to SHORT
"""

_DEFINITION = """
  %wide = bitcast FLOAT %x to INT
  %upper = lshr INT %wide, SPLAT(i32 16)
  %odd = and INT %upper, SPLAT(i32 1)
  %half = add INT %odd, SPLAT(i32 32767)
  %sum = add INT %wide, %half
  %nearest = lshr INT %sum, SPLAT(i32 16)
  %quiet = or INT %upper, SPLAT(i32 64)
  %is_nan = fcmp uno FLOAT %x, %x
  %chosen = select BIT %is_nan, INT %quiet, INT %nearest
  %bits = trunc INT %chosen to SHORT
"""


def _code(name: str, lanes: int, body: str) -> str:
    """Return the LLVM function that converts `lanes` values; a single one is a scalar, not a vector."""
    types = {"BFLOAT": "bfloat", "FLOAT": "float", "SHORT": "i16", "INT": "i32", "BIT": "i1"}
    for placeholder, llvm_type in types.items():
        body = body.replace(placeholder, f"<{lanes} x {llvm_type}>" if lanes > 1 else llvm_type)
    body = re.sub(r"SPLAT\((i32) (\d+)\)", r"splat (\1 \2)" if lanes > 1 else r"\2", body)
    short, wide = (f"<{lanes} x {scalar}>" if lanes > 1 else scalar for scalar in ("i16", "float"))
    return f"define {short} @{name}({wide} %x) {{{body}  ret {short} %bits\n}}\n"
