"""Weight-only quantization: a custom operator for products of float32 data with low-bit weights, and its pass.

The operands are the data and a matrix of packed weights, see `anole.targets.shared.weight_only`; the attributes are the
fields of the weights' scheme. The operator hides the weights from other passes until a target is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import tvm.ir._ffi_api
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.mutators import operator_of, rewrite, value_of
from anole.targets.shared.weight_only import StoredWeights
from anole.task import Dense, WeightScheme, Workload, weight_scheme

WEIGHT_ONLY = "anole.weight_only"


def _product_type(call: ir.Call, _: relax.BlockBuilder) -> relax.TensorType:
    data, packed = (operand.ty.shape.values for operand in call.args)
    return relax.TensorType([*data[:-1], packed[-1]], "float32")


tvm.ir._ffi_api.RegisterOp(WEIGHT_ONLY, "A product with low-bit weights.")
ir.register_op_attr(WEIGHT_ONLY, "FInferType", _product_type)
ir.register_op_attr(WEIGHT_ONLY, "FPurity", True)


def weight_only(data: ir.Expr, stored: StoredWeights, scheme: WeightScheme) -> ir.Call:
    """Multiply data by stored weights."""
    attrs = ir.make_node("ir.DictAttrs", **asdict(scheme))
    return relax.Call(ir.Op.get(WEIGHT_ONLY), [data, relax.const(stored.words(scheme))], attrs)


def scheme_of(call: ir.Expr) -> WeightScheme | None:
    """Return the storage scheme of a call's weights, or None for other calls."""
    if operator_of(call) != WEIGHT_ONLY:
        return None
    return WeightScheme(call.attrs["bits"], int(call.attrs["block"]), bool(call.attrs["zeros"]))


def store_weights(
    module: tvm.IRModule,
    workload_of: Callable[[ir.Expr], Workload | None],
    in_target_precision: Callable[[Workload], Workload],
) -> tvm.IRModule:
    """Store the weights of a normalized module's dense layers in the scheme of `in_target_precision(workload)`.

    Weights stored in another scheme are quantized again; without a scheme, they are dequantized.
    """

    @mutator
    class WeightStorer(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: ir.Call) -> ir.Expr:
            call = self.visit_expr_post_order(call)
            workload = workload_of(call)
            if not isinstance(workload, Dense):
                return call
            scheme = weight_scheme(in_target_precision(workload))
            return call if scheme == workload.weights else _with_scheme(call, scheme)

    return rewrite(module, WeightStorer)


def _with_scheme(call: ir.Call, scheme: WeightScheme | None) -> ir.Expr:
    """Return a product with weights stored in a scheme, or with float32 weights if it is None."""
    (data, weight), current_scheme = call.args, scheme_of(call)
    value: Any = value_of(weight)
    if current_scheme is not None:
        value = StoredWeights.read(value, current_scheme).values()
    if scheme is None:
        return relax.op.matmul(data, relax.const(value))
    return weight_only(data, StoredWeights.quantize(value, scheme), scheme)
