"""A bias of few channels is followed by zeros.

LLVM loads it as a whole register. In the lanes behind it is what happens to lie behind it in memory, and that goes
through the whole epilogue, although nobody asks for it: where it is a denormal number, a hyperbolic tangent of it makes
a kernel several times slower.
"""

from __future__ import annotations

import numpy as np
from tvm import ir, relax, te

_REGISTER_BYTES = 64
"""Of the widest register that there is; of more channels, the last are never loaded with what lies behind them."""


def legalize_add(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Returns the call of a sum, which reads the bias, where it is one, from among zeros."""
    data, bias = call.args
    if not _is_short_bias(bias, data.ty, call.ty):
        return call.op.get_attr("FLegalize")(bb, call)
    values = bias.value.numpy().reshape(-1)
    padded = relax.const(np.pad(values, (0, _REGISTER_BYTES // values.itemsize - values.size)))

    def add(x: te.Tensor, y: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: x[at] + y[at[-1]], name="add")

    return bb.call_te(add, data, padded, primfunc_name_hint="add")


def _is_short_bias(operand: ir.Expr, data: relax.TensorType, result: relax.TensorType) -> bool:
    """Returns whether an operand is one constant for each channel of data, and they do not fill a register."""
    if not isinstance(operand, ir.GenericConst) or list(data.shape) != list(result.shape):
        return False
    *others, channels = operand.value.shape or (0,)
    fills = channels * np.dtype(operand.value.dtype).itemsize >= _REGISTER_BYTES
    return set(others) <= {1} and channels == int(result.shape[-1]) and not fills
