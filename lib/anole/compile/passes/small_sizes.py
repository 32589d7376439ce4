"""Kernels with two programs, where sizes vary: one for small sizes and one for all others, on the same weights."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

from anole.compile.passes.kernel_calls import bindings
from anole.targets.shared.nodes import with_values
from anole.targets.shared.symbols import is_small, symbols_in, symbols_of


def with_small_sizes(module: tvm.IRModule, small: tvm.IRModule) -> tvm.IRModule:
    """Returns a lowered module whose kernels compute small sizes as those of another module of the same network do."""
    for variable, other in dict(zip(_kernels(module), _kernels(small), strict=True)).items():
        func, few = module[variable], small[other]
        if symbols_of(func) and not tvm_ffi.structural_equal(func.body, few.body, map_free_vars=True):
            module.update_func(variable, _either(few, func))
    return module


def _kernels(module: tvm.IRModule) -> list[ir.GlobalVar]:
    """Returns the kernels that a network calls, in order."""
    calls = (value for binding in bindings(module) if isinstance(value := binding.value, ir.Call))
    return [call.args[0] for call in calls if isinstance(call.op, ir.Op) and "call_tir" in call.op.name]


def _either(small: tirx.PrimFunc, func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a function that takes the way of the first one for small sizes, and else that of the second."""
    own: dict[Any, Any] = dict(zip(small.params, func.params, strict=True))
    for mine, theirs in zip(small.params, func.params, strict=True):
        # One name may have several symbols.
        own |= dict(zip(symbols_in(mine.ty), symbols_in(theirs.ty), strict=True))
    body = tirx.IfThenElse(is_small(symbols_of(func)), with_values(small.body, own), func.body)
    root = s_tir.SBlock([], [], [], func.body.block.name_hint, body)
    return tirx.PrimFunc(func.params, s_tir.SBlockRealize([], True, root), attrs=func.attrs)
