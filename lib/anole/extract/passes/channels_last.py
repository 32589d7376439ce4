"""Lays out the data of convolutions with channels last, by TVM's conversion."""

from __future__ import annotations

import tvm
from tvm import ir, relax

_LAYOUTS = {"relax.nn.conv2d": ["NHWC", "HWIO"], "relax.nn.conv2d_transpose": ["NHWC", "HWIO"]}


def lay_channels_last(module: tvm.IRModule) -> tvm.IRModule:
    """Returns the module with convolutions in NHWC, and permutations where other operators need another layout."""
    if not any(_is_converted(binding.value) for block in module["main"].body.blocks for binding in block.bindings):
        # The conversion takes time in proportion to the square of the network's length.
        return module
    return relax.transform.ConvertLayout(_LAYOUTS)(module)


def _is_converted(value: ir.Expr) -> bool:
    return isinstance(value, ir.Call) and isinstance(value.op, ir.Op) and value.op.name in _LAYOUTS
