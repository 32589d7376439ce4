"""Pass that folds a transposed right operand into the matrix product.

The result is an einsum, since Relax's matmul cannot express a transposed operand, or a custom operator for products of
uint8 and int8, since einsum requires equal dtypes.
"""

from __future__ import annotations

from math import prod
from string import ascii_lowercase
from typing import Any

import tvm.ir._ffi_api
from tvm import ir, relax, te
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.mutators import extents, operator_of, permuted_axes, resolve, rewrite

TRANSPOSED_INT8 = "anole.transposed_bytes"


def _product_type(call: ir.Call, _: relax.BlockBuilder) -> relax.TensorType:
    left, right = (operand.ty.shape.values for operand in call.args)
    return relax.TensorType([*left[:-1], right[-2]], "int32")


def _multiply(left: te.Tensor, right: te.Tensor) -> te.Tensor:
    """Compute int32 products; TVM's own definition rejects extents that are equal but distinct expressions."""
    *batch, rows, inner = left.shape
    k = te.reduce_axis((0, inner), "k")

    def element(*i: Any) -> Any:
        *outer, row, column = i
        return te.sum(left[(*outer, row, k)].astype("int32") * right[(*outer, column, k)].astype("int32"), axis=k)

    return te.compute((*batch, rows, right.shape[-2]), element, name="transposed_bytes")


tvm.ir._ffi_api.RegisterOp(TRANSPOSED_INT8, "Matrix products of uint8 and transposed int8.")
ir.register_op_attr(TRANSPOSED_INT8, "FInferType", _product_type)
ir.register_op_attr(TRANSPOSED_INT8, "FLegalize", lambda builder, call: builder.call_te(_multiply, *call.args))
ir.register_op_attr(TRANSPOSED_INT8, "FPurity", True)


def normalize_products(module: tvm.IRModule) -> tvm.IRModule:
    """Replace products with transposed right operands by products that read the operands in place."""
    return rewrite(module, _Absorber)


def is_transposed_product(call: ir.Expr) -> bool:
    """Whether an expression is a product that reads its right operand transposed."""
    if operator_of(call) == TRANSPOSED_INT8:
        return True
    operands = call.args[0] if operator_of(call) == "relax.einsum" else None
    if not isinstance(operands, relax.Tuple) or len(operands.fields) != 2:
        return False
    left, right = (len(operand.ty.shape) for operand in operands.fields)
    return left >= 2 and right >= 2 and str(call.attrs.subscripts) == _subscripts(left, right)


def transposed_product(left: ir.Expr, right: ir.Expr) -> ir.Call:
    """Multiply by the transpose of the right operand."""
    if str(left.ty.dtype) == "uint8":
        return relax.Call(ir.Op.get(TRANSPOSED_INT8), [left, right])
    return relax.op.einsum((left, right), _subscripts(len(left.ty.shape), len(right.ty.shape)))


def operands_of(call: ir.Call) -> tuple[ir.Expr, ir.Expr]:
    """Return the data and weight, or the left and right operand, of an anchor."""
    data, weight = call.args[0].fields if call.op.name == "relax.einsum" else call.args
    return data, weight


def _subscripts(left: int, right: int) -> str:
    """Return the einsum subscripts of a transposed product, given the ranks of both operands."""
    batch = ascii_lowercase[: left - 2]
    return f"{batch}yz,{batch[left - right :] if right > 2 else ''}xz->{batch}yx"


@mutator
class _Absorber(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.visit_expr_post_order(call)
        if operator_of(call) != "relax.matmul":
            return call
        left, right = call.args
        batches = [list(operand.ty.shape)[:-2] for operand in (left, right)]
        if min(len(left.ty.shape), len(right.ty.shape)) < 2 or (batches[1] and batches[0] != batches[1]):
            return call
        transposed = self._transpose(right)
        if transposed is None:
            return call
        product = transposed_product(left, transposed)
        dtype = str(self.builder_.normalize(call).ty.dtype)
        return product if dtype == str(left.ty.dtype) else relax.op.astype(product, dtype)

    def _transpose(self, value: ir.Expr) -> ir.Expr | None:
        """Return a value with its last two axes swapped, or None if this does not remove a transposition.

        Scaling, subtraction of a zero point, casts and reshapes of the batch axes may follow the transposition.
        """
        call = resolve(self, value)
        name = operator_of(call)
        if call is None or not name:
            return None
        if name == "relax.permute_dims":
            return self._transpose_permuted(call)
        shape = extents(call)
        splits_batch = name == "relax.reshape" and extents(call.args[0])[-2:] == shape[-2:]
        is_scalar_operation = name in ("relax.multiply", "relax.subtract") and prod(extents(call.args[1])) == 1
        keeps_layout = is_scalar_operation or name == "relax.astype"
        inner = self._transpose(call.args[0]) if splits_batch or keeps_layout else None
        if inner is None:
            return None
        if keeps_layout:
            return self.builder_.emit(relax.Call(call.op, [inner, *call.args[1:]], call.attrs))
        *batch, rows, columns = call.ty.shape
        return self.builder_.emit(relax.op.reshape(inner, (*batch, columns, rows)))

    def _transpose_permuted(self, call: ir.Call) -> ir.Expr | None:
        rank, axes = len(call.ty.shape), permuted_axes(call)
        if rank < 2 or axes[-2] != rank - 1:
            return None
        swapped = [*axes[:-2], axes[-1], axes[-2]]
        if swapped == list(range(rank)):
            return call.args[0]
        return self.builder_.emit(relax.op.permute_dims(call.args[0], swapped))
