"""Counts the memory of a compiled network: planned storage for intermediate tensors, and constants."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax
from tvm.ir.instrument import pass_instrument

_PLANNING = "StaticPlanBlockMemory"


@pass_instrument
class MemoryPlan:
    """Observes a compilation and records the planned memory.

    Attributes:
        activation_bytes: storage for all intermediate tensors; tensors that are not live at once share it.
        weight_bytes: size of the constants.
    """

    activation_bytes = 0
    weight_bytes = 0

    def run_after_pass(self, module: tvm.IRModule, info: Any) -> None:
        """Counts after the memory planning pass; TVM calls it after every pass."""
        if info.name == _PLANNING:
            for _, function in module.functions_items():
                if isinstance(function, relax.Function):
                    relax.analysis.post_order_visit(function, self._count)

    def to_json(self) -> dict[str, int]:
        """Returns the plain form, as in build.json."""
        return {"activation_bytes": self.activation_bytes, "weight_bytes": self.weight_bytes}

    def _count(self, expression: ir.Expr) -> None:
        if isinstance(expression, ir.GenericConst) and isinstance(expression.value, tvm.runtime.Tensor):
            self.weight_bytes += expression.value.numpy().nbytes
        elif isinstance(expression, ir.Call) and isinstance(expression.op, ir.Op):
            if expression.op.name == "relax.memory.alloc_storage":
                self.activation_bytes += prod(map(int, expression.args[0].values))
            elif expression.op.name == "relax.builtin.alloc_tensor":
                self.activation_bytes += (
                    prod(map(int, expression.ty.shape)) * np.dtype(str(expression.ty.dtype)).itemsize
                )
