"""Calls of kernels in a network that is being lowered: what they call, and how that may fuse."""

from __future__ import annotations

import json
from enum import IntEnum
from math import prod
from typing import Any

import tvm
from tvm import ir, relax, tirx
from tvm_ffi import dtype

from anole.ir.symbols import typical_shape
from anole.task import Workload, workload_from_json

WORKLOAD = "anole.workload"
"""The attribute of an anchor's block, and of the scheduled function around it, that holds the workload as JSON."""


class Pattern(IntEnum):
    """TVM's patterns of operators, the attribute ``op_pattern`` of a function, by which it decides what to fuse."""

    BROADCAST = 1
    INJECTIVE = 2
    """Every result is read from known places."""
    REDUCTION = 3
    """Fuses with what computes its operands, and not with what reads its result."""
    ANCHOR = 4
    """Fuses with element-wise operators that read its result."""
    OPAQUE = 8
    """Fuses with nothing."""


def bindings(module: tvm.IRModule) -> list[relax.Binding]:
    """Return the bindings of all of a module's functions, in order."""
    functions = [func for _, func in module.functions_items() if isinstance(func, relax.Function)]
    return [binding for func in functions for block in func.body.blocks for binding in block.bindings]


def calls_of(module: tvm.IRModule) -> list[ir.Call]:
    """Return the calls of a network's kernels, in order."""
    return [value for binding in bindings(module) if is_kernel(value := getattr(binding, "value", None))]


def is_kernel(value: Any) -> bool:
    """Whether an expression is the call of a kernel."""
    return isinstance(value, ir.Call) and isinstance(value.op, ir.Op) and "call_tir" in value.op.name


def called(module: tvm.IRModule, value: ir.Expr) -> tirx.PrimFunc | None:
    """Return the kernel that a binding's value calls, or None if it is no such call."""
    if isinstance(value, ir.Call) and isinstance(value.op, ir.Op) and value.op.name == "relax.call_tir":
        return module[value.args[0]]
    return None


def anchored(func: tirx.PrimFunc) -> Workload | None:
    """Return the workload of the anchor in a scheduled function, if it has one."""
    text = func.attrs.get(WORKLOAD) if func.attrs else None
    return None if text is None else workload_from_json(json.loads(str(text)))


def marked(
    builder: relax.BlockBuilder, call: ir.Call, pattern: Pattern, name: str | None = None, **attributes: object
) -> ir.Call:
    """Return the call of a kernel with a pattern and attributes, which it does not have for its other callers."""
    func = builder.get()[call.args[0]].with_attrs({"op_pattern": int(pattern), **attributes})
    (made,) = call.ty_args
    types = list(made.fields) if isinstance(made, ir.TupleType) else made
    return relax.call_tir(builder.add_func(func, name or call.args[0].name_hint), call.args[1], types)


def size_bytes(ty: Any) -> int:
    """Return the size of a tensor or buffer of this type, of the usual sizes where it varies."""
    return prod(typical_shape(ty.shape) or ()) * int(dtype(str(ty.dtype)).itemsize)
