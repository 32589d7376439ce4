"""Pass that converts convolutions and matrix products to low-precision operands, and stores their inputs rounded.

Accumulators are float32, or int32 for integers; all other operators stay float32. A value is rounded once, where it is
computed, so its consumers load less memory. Operators that only move or select values run on rounded values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.extract.passes.byte_products import PACKED_LANES, multiply_8bit, pad
from anole.extract.passes.value_ranges import VALUE_PRESERVING, Operand8Bit, as_8bit_operand
from anole.ir.mutators import ELEMENTWISE, bindings, operator_of, rewrite, value_of, with_attrs
from anole.ir.normalize_products import operands_of
from anole.ir.symbols import largest
from anole.task import BatchMatmul, Conv2d, Dense, Workload

ToLowPrecision = Callable[[Workload], Workload]
"""A function from a float32 workload to the same workload, or to a low-precision one."""

_INT8 = np.iinfo(np.int8)

_MAX_EXACT_TERMS = (2**31 - 1) // 255**2
"""The maximum number of products of 8-bit integers with zero points whose sum fits int32."""

_COMMUTING = VALUE_PRESERVING | {"relax.concat"}
"""Operators that commute with rounding."""

_CASTING = frozenset((*ELEMENTWISE, "relax.mean", "relax.nn.avg_pool2d", "relax.nn.adaptive_avg_pool2d"))
"""Other operators that cast low-precision inputs to float32 inside their own kernels."""


@dataclass(frozen=True)
class _Storage:
    """The storage of a float32 variable: a dtype, and the offset that was subtracted."""

    dtype: str
    offset: int = 0


@dataclass(frozen=True)
class _Operand:
    """An anchor's low-precision operand: a stored variable minus a zero point, which is `zero` + `computed`."""

    data: relax.Var
    stored: _Storage
    zero: int = 0
    computed: relax.Var | None = None


@dataclass(frozen=True)
class _Anchor:
    """An anchor to convert to low precision.

    Attributes:
        operands: the data, or both operands if both are computed.
        workload: the workload before the conversion.
    """

    operands: tuple[_Operand, ...]
    workload: Workload


def lower_precision(
    module: tvm.IRModule, workload_of: Callable[[ir.Expr], Workload | None], in_target_precision: ToLowPrecision
) -> tvm.IRModule:
    """Convert the anchors of a normalized module to the dtypes of `in_target_precision(workload)`."""
    values = {binding.var: binding.value for binding in bindings(module["main"])}
    anchors_: dict[relax.Var, _Anchor] = {}
    for variable, value in values.items():
        workload = workload_of(value)
        operands = () if workload is None else _operands(value, workload, in_target_precision, values)
        if workload is not None and operands:
            anchors_[variable] = _Anchor(operands, workload)
    if not anchors_:
        return module
    stored = {operand.data: operand.stored for anchor in anchors_.values() for operand in anchor.operands}
    products = (variable for variable, anchor in anchors_.items() if isinstance(anchor.workload, BatchMatmul))
    stored |= dict.fromkeys(products, _Storage("int32"))
    if any(storage.dtype == "uint8" for storage in stored.values()):
        clipped = (variable for variable, value in values.items() if operator_of(value) == "relax.clip")
        operands_ = {variable: as_8bit_operand(variable, values) for variable in clipped}
        stored = {op.base: _Storage("uint8", op.least) for op in operands_.values() if op is not None} | stored
    for variable, value in reversed(list(values.items())):
        if variable in stored and operator_of(value) in _COMMUTING:
            stored = dict.fromkeys(_float_variables(value), stored[variable]) | stored

    class Converter(_Converter):
        anchors, stored_as = anchors_, stored

    return rewrite(module, mutator(Converter))


def _operands(
    call: ir.Expr, workload: Workload, in_target_precision: ToLowPrecision, values: dict[relax.Var, ir.Expr]
) -> tuple[_Operand, ...]:
    """Return the operands of an anchor to convert to low precision; empty to keep the anchor in float32."""
    if isinstance(workload, BatchMatmul):
        return _product_operands(call, workload, in_target_precision, values)
    assert isinstance(workload, (Conv2d, Dense))
    data = call.args[0]
    if not workload.exact:
        dtype = in_target_precision(workload).dtype
        return (_Operand(data, _Storage(dtype)),) if dtype != workload.dtype and isinstance(data, relax.Var) else ()
    operand, weight = as_8bit_operand(data, values), np.asarray(value_of(call.args[1]))
    if weight.min() < _INT8.min or weight.max() > _INT8.max:
        return ()
    if operand is None or in_target_precision(_pad_workload(workload)).dtype != "uint8":
        return ()
    return (_stored_operand(operand, "uint8"),)


def _product_operands(
    call: ir.Expr, workload: BatchMatmul, in_target_precision: ToLowPrecision, values: dict[relax.Var, ir.Expr]
) -> tuple[_Operand, ...]:
    """Return the operands of a batched matmul to convert to 8 bits; empty to keep the product in float32."""
    left, right = (as_8bit_operand(operand, values) for operand in operands_of(call))
    inner = operands_of(call)[0].ty.shape[-1]
    if left is None or right is None or (largest(inner) or workload.inner) > _MAX_EXACT_TERMS:
        return ()
    if in_target_precision(_pad_workload(replace(workload, exact=True))).dtype != "uint8":
        return ()
    return _stored_operand(left, "uint8"), _stored_operand(right, "int8")


def _stored_operand(operand: Operand8Bit, dtype: str) -> _Operand:
    """Return an 8-bit operand stored as uint8 or int8."""
    offset = operand.least - int(np.iinfo(dtype).min)
    return _Operand(operand.base, _Storage(dtype, offset), operand.zero - offset, operand.computed)


def _pad_workload(workload: Workload) -> Workload:
    """Round a workload's channels up to a multiple of `PACKED_LANES`."""
    if isinstance(workload, Dense):
        return replace(workload, in_features=-(-workload.in_features // PACKED_LANES) * PACKED_LANES)
    if isinstance(workload, BatchMatmul):
        return replace(workload, inner=-(-workload.inner // PACKED_LANES) * PACKED_LANES)
    if isinstance(workload, Conv2d) and workload.groups == 1:
        return replace(workload, in_channels=-(-workload.in_channels // PACKED_LANES) * PACKED_LANES)
    return workload


def _float_variables(call: ir.Call) -> list[relax.Var]:
    """Return the float32 variables that a call reads."""
    operands = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else call.args
    return [var for var in operands if isinstance(var, relax.Var) and str(getattr(var.ty, "dtype", "")) == "float32"]


class _Converter(PyExprMutator):  # type: ignore[misc]
    """The mutator, with the anchors and the storage of values by variable."""

    anchors: dict[relax.Var, _Anchor]
    stored_as: dict[relax.Var, _Storage]

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._stored_values: dict[tuple[relax.Var, _Storage], ir.Expr] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self._binding = binding.var
        super().visit_var_binding_(binding)

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        variable, operator = self._binding, operator_of(call)
        if (anchor := self.anchors.get(variable)) is not None:
            return self._convert(call, anchor)
        if operator in _COMMUTING and (stored := self.stored_as.get(variable)) is not None:
            return self._register(self._map_tensors(call, lambda var: self._store(var, stored)), stored)
        if operator == "relax.astype" and (rounded := self._drop_cast(call)) is not None:
            return rounded
        return self._map_tensors(call, self._load) if operator in _CASTING else self.visit_expr_post_order(call)

    def _register(self, value: ir.Expr, stored: _Storage) -> ir.Expr:
        """Register the stored value of the current variable, and return it in float32."""
        rounded = self._stored_values[self._binding, stored] = self.builder_.emit(value)
        return self._widen(rounded, stored)

    def _convert(self, call: ir.Call, anchor: _Anchor) -> ir.Expr:
        if isinstance(anchor.workload, BatchMatmul):
            return self._convert_product(call, anchor.workload, anchor.operands)
        (operand,) = anchor.operands
        return self._to_8_bits(call, operand) if operand.stored.dtype == "uint8" else self._to_float(call, operand)

    def _convert_product(self, call: ir.Call, workload: BatchMatmul, operands: tuple[_Operand, ...]) -> ir.Expr:
        """Return the int32 product of two computed 8-bit operands, cast to float32 if the call returns that."""
        left, right = (self._store(operand.data, operand.stored) for operand in operands)
        zeros = (self._zero_of(operand, "int32") for operand in operands)
        flat = multiply_8bit(self.builder_, workload, left, right, *zeros)
        product = relax.op.reshape(flat, call.ty.shape)
        return product if str(call.ty.dtype) == "int32" else self._register(product, self.stored_as[self._binding])

    def _to_float(self, call: ir.Call, operand: _Operand) -> ir.Call:
        dtype = operand.stored.dtype
        weight = np.asarray(value_of(call.args[1])).astype(getattr(ml_dtypes, dtype))
        data = self._store(operand.data, operand.stored)
        return with_attrs(call, [data, relax.const(weight, dtype)], out_dtype="float32")

    def _to_8_bits(self, call: ir.Call, operand: _Operand) -> ir.Expr:
        """Return the 8-bit product minus the contribution of the zero point, which also pads the data."""
        data, weight = self._store(operand.data, operand.stored), np.asarray(value_of(call.args[1]))
        axis, is_image = weight.ndim - 2, operator_of(call) == "relax.nn.conv2d"
        missing = 0 if is_image and call.attrs.groups > 1 else -weight.shape[axis] % PACKED_LANES
        has_zero = operand.zero or operand.computed is not None
        pads = [int(pad) for pad in call.attrs.padding] if is_image and has_zero else [0] * 4
        if missing or any(pads):
            leading = [0] * (len(data.ty.shape) - 1)
            before = [0, *pads[:2], 0] if is_image else [*leading, 0]
            after = [0, *pads[2:], missing] if is_image else [*leading, missing]
            zero = self._zero_of(operand, operand.stored.dtype)
            data = self.builder_.emit_te(pad, data, zero, before, after, primfunc_name_hint="pad")
        padded = np.pad(weight, [(0, missing if i == axis else 0) for i in range(weight.ndim)]).astype(np.int8)
        attributes: dict[str, Any] = {"padding": [0] * 4} if any(pads) else {}
        product = with_attrs(call, [data, relax.const(padded)], out_dtype="int32", **attributes)
        sums = weight.reshape(-1, weight.shape[-1]).sum(0, dtype=np.int32)
        if operand.zero:
            product = relax.op.subtract(self.builder_.emit(product), relax.const(operand.zero * sums))
        if operand.computed is not None:
            zero = self.builder_.emit(relax.op.astype(self.visit_expr(operand.computed), "int32"))
            correction = self.builder_.emit(relax.op.multiply(zero, relax.const(sums)))
            product = relax.op.subtract(self.builder_.emit(product), correction)
        return product

    def _zero_of(self, operand: _Operand, dtype: str) -> ir.Expr:
        """Return the zero point of the stored operand, constant plus computed, as a scalar of a dtype."""
        constant = relax.const(float(operand.zero), "float32")
        if operand.computed is None:
            return relax.const(operand.zero, dtype)
        computed = self.builder_.emit(relax.op.reshape(self.visit_expr(operand.computed), []))
        zero_point = self.builder_.emit(relax.op.add(computed, constant))
        return self.builder_.emit(relax.op.astype(zero_point, dtype))

    def _map_tensors(self, call: ir.Call, change: Callable[[relax.Var], ir.Expr]) -> ir.Call:
        """Return the call with a function applied to the float32 variables that it reads."""
        tensors = _float_variables(call)

        def map_operand(operand: ir.Expr) -> ir.Expr:
            if isinstance(operand, relax.Tuple):
                return relax.Tuple(list(map(map_operand, operand.fields)))
            return change(operand) if any(operand.same_as(tensor) for tensor in tensors) else self.visit_expr(operand)

        return with_attrs(call, list(map(map_operand, call.args)))

    def _store(self, operand: relax.Var, stored: _Storage) -> ir.Expr:
        """Return a value as stored; it is rounded once per kind of storage."""
        if (operand, stored) not in self._stored_values:
            value = self.visit_expr(operand)
            if stored.offset:
                value = self.builder_.emit(relax.op.subtract(value, relax.const(float(stored.offset), "float32")))
            self._stored_values[operand, stored] = self.builder_.emit(relax.op.astype(value, stored.dtype))
        return self._stored_values[operand, stored]

    def _load(self, operand: relax.Var) -> ir.Expr:
        """Return a stored value cast back to float32; the cast is not shared with other consumers."""
        stored = self.stored_as.get(operand)
        return self.visit_expr(operand) if stored is None else self._widen(self._store(operand, stored), stored)

    def _widen(self, rounded: ir.Expr, stored: _Storage) -> ir.Expr:
        wide = self.builder_.emit(relax.op.astype(rounded, "float32"))
        if stored.offset:
            wide = self.builder_.emit(relax.op.add(wide, relax.const(float(stored.offset), "float32")))
        return wide

    def _drop_cast(self, call: ir.Call) -> ir.Expr | None:
        """Return the stored value if a cast only repeats the rounding; None for all other casts."""
        stored = self.stored_as.get(call.args[0]) if isinstance(call.args[0], relax.Var) else None
        if stored is None or stored.offset or str(call.attrs.dtype) != stored.dtype:
            return None
        return self._store(call.args[0], stored)
