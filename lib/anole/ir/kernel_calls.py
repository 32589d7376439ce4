"""Kernel calls in a lowered network: the called functions, their workloads, and fusion patterns."""

from __future__ import annotations

import json
from enum import IntEnum
from math import prod
from typing import Any

import tvm
from tvm import ir, relax, tirx
from tvm_ffi import dtype

from anole.ir.mutators import bindings
from anole.ir.symbols import typical_shape
from anole.task import Workload, workload_from_json

WORKLOAD = "anole.workload"
"""The attribute that holds the workload as JSON, on an anchor's block and on the scheduled function around it."""


class Pattern(IntEnum):
    """TVM's operator patterns, the function attribute ``op_pattern`` that guides fusion."""

    BROADCAST = 1
    INJECTIVE = 2
    """Computes each output element from input elements at known indices."""
    REDUCTION = 3
    """Fuses with producers of its operands, but not with consumers of its result."""
    ANCHOR = 4
    """Fuses with elementwise consumers of its result."""
    OPAQUE = 8
    """Is never fused."""


def calls_of(module: tvm.IRModule) -> list[ir.Call]:
    """Return the kernel calls of a network, in order."""
    return [value for binding in bindings(module) if is_kernel(value := getattr(binding, "value", None))]


def is_kernel(value: Any) -> bool:
    """Whether an expression is a kernel call."""
    return isinstance(value, ir.Call) and isinstance(value.op, ir.Op) and "call_tir" in value.op.name


def called_kernel(module: tvm.IRModule, value: ir.Expr) -> tirx.PrimFunc | None:
    """Return the kernel that an expression calls, or None for other expressions."""
    if isinstance(value, ir.Call) and isinstance(value.op, ir.Op) and value.op.name == "relax.call_tir":
        return module[value.args[0]]
    return None


def anchor_workload(func: tirx.PrimFunc) -> Workload | None:
    """Return the workload of a scheduled function's anchor, or None."""
    text = func.attrs.get(WORKLOAD) if func.attrs else None
    return None if text is None else workload_from_json(json.loads(str(text)))


def mark(
    builder: relax.BlockBuilder, call: ir.Call, pattern: Pattern, name: str | None = None, **attributes: object
) -> ir.Call:
    """Return a call of a copy of the kernel with a pattern and attributes; other callers keep the original."""
    func = builder.get()[call.args[0]].with_attrs({"op_pattern": int(pattern), **attributes})
    (result_type,) = call.ty_args
    types = list(result_type.fields) if isinstance(result_type, ir.TupleType) else result_type
    return relax.call_tir(builder.add_func(func, name or call.args[0].name_hint), call.args[1], types)


def size_bytes(ty: Any) -> int:
    """Return the size in bytes of a tensor or buffer type, with dynamic extents at typical sizes."""
    return prod(typical_shape(ty.shape) or ()) * int(dtype(str(ty.dtype)).itemsize)
