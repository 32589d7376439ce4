"""Products of float32 data with weights that are stored in few bits: an operator of its own, until a target is known.

Its operands are the data and a matrix of words, see `anole.targets.shared.weight_only`; its attributes are those of
their scheme. Passes that do not know the operator leave it as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import tvm.ir._ffi_api
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.mutators import operator_of, rewritten, value_of
from anole.targets.shared.weight_only import StoredWeights
from anole.task import Dense, WeightScheme, Workload, weight_scheme

WEIGHT_ONLY = "anole.weight_only"


def _product_type(call: ir.Call, _: relax.BlockBuilder) -> relax.TensorType:
    data, words = (operand.ty.shape.values for operand in call.args)
    return relax.TensorType([*data[:-1], words[-1]], "float32")


tvm.ir._ffi_api.RegisterOp(WEIGHT_ONLY, "A product with weights that are stored in few bits.")
ir.register_op_attr(WEIGHT_ONLY, "FInferType", _product_type)
ir.register_op_attr(WEIGHT_ONLY, "FPurity", True)


def weight_only(data: ir.Expr, stored: StoredWeights, scheme: WeightScheme) -> ir.Call:
    """Return the product of data with stored weights."""
    attrs = ir.make_node("ir.DictAttrs", **asdict(scheme))
    return relax.Call(ir.Op.get(WEIGHT_ONLY), [data, relax.const(stored.words(scheme))], attrs)


def scheme_of(call: ir.Expr) -> WeightScheme | None:
    """Return how the weights of a call are stored; None if it is no such product."""
    if operator_of(call) != WEIGHT_ONLY:
        return None
    return WeightScheme(call.attrs["bits"], int(call.attrs["block"]), bool(call.attrs["zeros"]))


def store_weights(
    module: tvm.IRModule, workload_of: Callable[[ir.Expr], Workload | None], narrowed: Callable[[Workload], Workload]
) -> tvm.IRModule:
    """Return a module in normal form whose dense layers store their weights as `narrowed` says of their workloads.

    Weights that are stored otherwise are rounded, and those that shall not be stored are what they stand for.
    """

    @mutator
    class Storing(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: ir.Call) -> ir.Expr:
            call = self.visit_expr_post_order(call)
            workload = workload_of(call)
            if not isinstance(workload, Dense):
                return call
            scheme = weight_scheme(narrowed(workload))
            return call if scheme == workload.weights else _stored_by(call, scheme)

    return rewritten(module, Storing)


def _stored_by(call: ir.Call, scheme: WeightScheme | None) -> ir.Expr:
    """Return a product with its weights stored by a scheme, or with plain weights if there is none."""
    (data, weight), own = call.args, scheme_of(call)
    value: Any = value_of(weight)
    if own is not None:
        value = StoredWeights.read(value, own).values()
    if scheme is None:
        return relax.op.matmul(data, relax.const(value))
    return weight_only(data, StoredWeights.rounded(value, scheme), scheme)
