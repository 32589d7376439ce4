"""Legalize element-wise operators: transcendental functions as vectorizable polynomials, and sums with padded biases.

LLVM loads a short bias as a full register. Without padding, the unused lanes hold the memory that follows the bias, and
pass through the epilogue. The tanh of a denormal in such a lane makes the kernel several times slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import ir, relax, te, tirx

from anole.ir import polynomials
from anole.ir.polynomials import Value, bound, const
from anole.ir.symbols import all_static

_REGISTER_BYTES = 64
"""Size of the widest vector register; a bias that fills it needs no padding."""

Legalize = Callable[[relax.BlockBuilder, ir.Call], ir.Expr]


def fast_math_map() -> dict[str, Legalize]:
    """Return the legalization of each operator; dtypes other than float32 keep TVM's definition."""
    return {
        "relax.exp": _float32_legalizer(_elementwise_definition(polynomials.exp)),
        "relax.tanh": _float32_legalizer(_elementwise_definition(polynomials.tanh)),
        "relax.erf": _float32_legalizer(_elementwise_definition(polynomials.erf)),
        "relax.log": _float32_legalizer(_elementwise_definition(polynomials.logarithm)),
        "relax.sigmoid": _float32_legalizer(_elementwise_definition(polynomials.sigmoid)),
        "relax.nn.silu": _float32_legalizer(_elementwise_definition(polynomials.silu)),
        "relax.nn.gelu": _float32_legalizer(_elementwise_definition(polynomials.gelu)),
        "relax.nn.gelu_tanh": _float32_legalizer(_elementwise_definition(polynomials.gelu_tanh)),
        "relax.nn.softmax": _float32_legalizer(_softmax, "axis"),
    }


def _float32_legalizer(definition: Callable[..., te.Tensor], *attributes: str) -> Legalize:
    def legalize(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
        if str(call.ty.dtype) != "float32":
            return call.op.get_attr("FLegalize")(bb, call)
        settings = [getattr(call.attrs, name) for name in attributes]
        hint = str(call.op.name).rpartition(".")[2]
        return bb.call_te(definition, call.args[0], *settings, primfunc_name_hint=hint)

    return legalize


def _elementwise_definition(function: Callable[[Value], Value]) -> Callable[[te.Tensor], te.Tensor]:
    return lambda data: te.compute(data.shape, lambda *i: bound(data(*i), function), name=function.__name__)


def _softmax(data: te.Tensor, axis: int) -> te.Tensor:
    """Define a softmax whose exponential is a polynomial, in separate stages that the schedule fuses."""
    axis %= data.ndim
    outer = [*data.shape[:axis], *data.shape[axis + 1 :]]

    def reduce(reducer: Callable[..., Value], source: te.Tensor, name: str) -> te.Tensor:
        reduced = te.reduce_axis((0, data.shape[axis]), "k")
        return te.compute(outer, lambda *i: reducer(source(*i[:axis], reduced, *i[axis:]), axis=reduced), name=name)

    def row_index(indices: tuple[Value, ...]) -> tuple[Value, ...]:
        return (*indices[:axis], *indices[axis + 1 :])

    maximum = reduce(te.max, data, "softmax_max")
    differences = te.compute(data.shape, lambda *i: data(*i) - maximum(*row_index(i)), name="softmax_delta")
    powers = te.compute(data.shape, lambda *i: bound(differences(*i), polynomials.exp_nonpositive), name="softmax_exp")
    total = reduce(te.sum, powers, "softmax_sum")
    inverse = te.compute(outer, lambda *i: const(1.0) / total(*i), name="softmax_inverse")
    return te.compute(data.shape, lambda *i: powers(*i) * inverse(*row_index(i)), name="softmax_norm")


def legalize_add(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Legalize a sum; a short bias operand is read from a zero-padded constant."""
    data, bias = call.args
    if not _is_short_bias(bias, data.ty, call.ty):
        return call.op.get_attr("FLegalize")(bb, call)
    values = bias.value.numpy().reshape(-1)
    padded = relax.const(np.pad(values, (0, _REGISTER_BYTES // values.itemsize - values.size)))

    def add(x: te.Tensor, y: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: x[i] + y[i[-1]], name="add")

    return bb.call_te(add, data, padded, primfunc_name_hint="add")


def legalize_cast(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Legalize a cast of booleans as a select; TVM cannot compile a vector of casts held in a variable."""
    data = call.args[0]
    if str(data.ty.dtype) != "bool":
        return call.op.get_attr("FLegalize")(bb, call)
    one, zero = (tirx.const(value, str(call.ty.dtype)) for value in (1, 0))

    def cast(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: tirx.Select(x(*i), one, zero), name="cast")

    return bb.call_te(cast, data, primfunc_name_hint="cast")


def legalize_by_zero(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Reshape a scalar zero to one axis; TVM simplifies ``x * 0.0`` to 0 even for NaN, and rejects ``x / 0.0``."""
    operands = [_reshape_zero(operand) for operand in call.args] if call.ty.ndim else list(call.args)
    return call.op.get_attr("FLegalize")(bb, bb.normalize(relax.Call(call.op, operands, call.attrs)))


def _reshape_zero(operand: ir.Expr) -> ir.Expr:
    is_scalar = isinstance(operand, ir.GenericConst) and not operand.ty.ndim and "float" in str(operand.ty.dtype)
    if not is_scalar or operand.value.numpy().any():
        return operand
    return relax.const(operand.value.numpy().reshape(1), str(operand.ty.dtype))


def legalize_subtract(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Legalize a difference of floats as a sum, because TVM simplifies ``x + y - y`` to x, ignoring rounding."""
    data, other = call.args
    if "float" not in str(call.ty.dtype):
        return call.op.get_attr("FLegalize")(bb, call)
    if isinstance(other, ir.GenericConst):
        negative = relax.const(-other.value.numpy(), str(other.ty.dtype))
        return legalize_add(bb, bb.normalize(relax.op.add(data, negative)))

    def subtract(x: te.Tensor, y: te.Tensor) -> te.Tensor:
        shape = list(call.ty.shape)
        return te.compute(shape, lambda *i: _broadcast(x, i) + -_broadcast(y, i), name="subtract")

    return bb.call_te(subtract, data, other, primfunc_name_hint="subtract")


def _broadcast(tensor: te.Tensor, result_indices: Sequence[Value]) -> Value:
    """Return the element of a tensor that broadcasting maps to an index of the result."""
    indices = result_indices[len(result_indices) - tensor.ndim :]
    return tensor(
        *(
            0 if all_static([extent]) and int(extent) == 1 else index
            for extent, index in zip(tensor.shape, indices, strict=True)
        )
    )


def _is_short_bias(operand: ir.Expr, data: relax.TensorType, result: relax.TensorType) -> bool:
    """Whether an operand is a constant with one value for each channel that does not fill a register."""
    if not isinstance(operand, ir.GenericConst) or not result.ndim or list(data.shape) != list(result.shape):
        return False
    if not all_static([result.shape[-1]]):
        return False
    *leading, channels = operand.value.shape or (0,)
    fills_register = channels * np.dtype(operand.value.dtype).itemsize >= _REGISTER_BYTES
    return set(leading) <= {1} and channels == int(result.shape[-1]) and not fills_register
