"""Pass that merges chains of additions and multiplications by constants, and folds scales into preceding weights."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.convolutions import is_channels_last
from anole.ir.mutators import bindings, extents, operator_of, read_counts, resolve_if_read_once, rewrite, value_of

_Values = NDArray[np.float64]


class _Affine(NamedTuple):
    """scale * data + shift, where both constants broadcast to the data."""

    data: ir.Expr
    scale: _Values
    shift: _Values

    def compose(self, first: _Affine) -> _Affine:
        """Compose with a step that is applied first."""
        return _Affine(first.data, self.scale * first.scale, self.scale * first.shift + self.shift)

    def undoes(self, first: _Affine, is_weighted: bool) -> bool:
        """Whether this step reverts the first one, except for its rounding, overflow or underflow.

        ``(x + 12582912) - 12582912`` rounds x to an integer. After an operator with weights, as with a batch norm, the
        shifts of some channels may nearly cancel by chance, so the maximum over channels is compared.
        """
        combined, shifted = self.compose(first), self.scale * first.shift
        sizes, remaining = np.broadcast_arrays(np.abs(shifted), np.abs(combined.shift))
        if is_weighted:
            sizes, remaining = sizes.max(), remaining.max()
        with np.errstate(divide="ignore"):
            exponents, remaining_exponents = (np.abs(np.log2(np.abs(scale))) for scale in (first.scale, combined.scale))
        is_finite = np.isfinite(exponents)
        return bool(
            (remaining < sizes * _MIN_KEPT_SHIFT).any()
            or (remaining_exponents + _MAX_EXPONENT_UNDONE < np.where(is_finite, exponents, 0)).any()
        )


_ZERO, _ONE = np.array(0.0), np.array(1.0)

_STEPS: dict[str, Callable[[_Values], tuple[_Values, _Values]]] = {
    "relax.add": lambda value: (_ONE, value),
    "relax.subtract": lambda value: (_ONE, -value),
    "relax.multiply": lambda value: (value, _ZERO),
    "relax.divide": lambda value: (1 / value, _ZERO),
}
"""The scale and shift of each operator with a constant right operand."""

_MIN_KEPT_SHIFT = 2.0**-12
"""Min share of a shift that remains after two steps; below it, the first step's rounding affects the result."""

_MAX_EXPONENT_UNDONE = 64
"""Half of float32's exponent range."""

_ROUNDING_OPERATORS = ("relax.ceil", "relax.floor", "relax.round")

_WEIGHTED_OPERATORS = ("relax.nn.conv2d", "relax.matmul")


def merge_affine(module: tvm.IRModule) -> tvm.IRModule:
    """Reduce chains of constant operations in an NHWC module to at most one multiplication and one addition.

    A multiplication is folded into the weights of the preceding convolution or matrix product, if nothing else reads
    that result. This also folds a batch norm after a bias. A division by constants is treated as a multiplication,
    except of a scalar, where it saves nothing, and before rounding, where the last bit may change the result.
    """
    return rewrite(module, _Merger)


@mutator
class _Merger(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._uses = read_counts(module)
        rounded = (binding.value for binding in bindings(module) if operator_of(binding.value) in _ROUNDING_OPERATORS)
        self._rounded = {call.args[0] for call in rounded}
        self._is_before_rounding = False

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self._is_before_rounding = binding.var in self._rounded
        super().visit_var_binding_(binding)
        self._uses[self.visit_expr(binding.var)] = self._uses[binding.var]

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        step = _step(call)
        if step is None or (call.op.name == "relax.divide" and (self._is_before_rounding or prod(extents(call)) == 1)):
            return call
        merged = self._merge(step)
        weighted = None if (merged.scale == 1).all() else self._scale_weights(merged.data, merged.scale)
        if weighted is not None:
            merged = _Affine(self.builder_.emit(weighted), _ONE, merged.shift)
        is_new = merged.data is not step.data or call.op.name == "relax.divide"
        return self._as_calls(merged) if is_new and np.isfinite(merged.scale).all() else call

    def _merge(self, step: _Affine) -> _Affine:
        """Merge a step with preceding steps whose results nothing else reads, up to one that it undoes."""
        is_weighted = self._is_weighted(step)
        while (previous := _step(resolve_if_read_once(self, self._uses, step.data))) is not None:
            if step.undoes(previous, is_weighted):
                break
            step = step.compose(previous)
        return step

    def _is_weighted(self, step: _Affine | None) -> bool:
        """Whether a chain of steps starts at a product with weights."""
        call: Any = None
        while step is not None:
            call = resolve_if_read_once(self, self._uses, step.data)
            step = _step(call)
        return operator_of(call) in _WEIGHTED_OPERATORS

    def _scale_weights(self, data: ir.Expr, scale: _Values) -> ir.Call | None:
        """Fold a scale into the weights of the data's operator; return None if impossible."""
        call = resolve_if_read_once(self, self._uses, data)
        if operator_of(call) not in _WEIGHTED_OPERATORS:
            return None
        weight, results = value_of(call.args[1]), extents(call)[-1]
        is_per_channel = scale.size == 1 or (scale.size == results and scale.shape[-1] == results)
        if weight is None or weight.ndim < 2 or not is_per_channel or not np.isfinite(scale).all():
            return None
        if call.op.name == "relax.nn.conv2d" and not is_channels_last(call):
            return None
        scaled = relax.const((weight * scale.ravel()).astype(weight.dtype))
        return relax.Call(call.op, [call.args[0], scaled], call.attrs)

    def _as_calls(self, affine: _Affine) -> ir.Expr:
        data, scale, shift = affine
        if (scale == 1).all():
            return relax.op.add(data, _const(shift)) if shift.any() else data
        scaled = relax.op.multiply(data, _const(scale))
        # Do not emit a product that is itself the result: later steps would not see it through another variable.
        return relax.op.add(self.builder_.emit(scaled), _const(shift)) if shift.any() else scaled


def _step(call: Any) -> _Affine | None:
    """Express a call as scale and shift; return None for other operators, or if it broadcasts its data."""
    if operator_of(call) not in _STEPS:
        return None
    data, other = call.args
    if call.op.name in ("relax.add", "relax.multiply") and value_of(other) is None:
        data, other = other, data
    value = value_of(other)
    if value is None or value_of(data) is not None or str(call.ty.dtype) != "float32" or extents(data) != extents(call):
        return None
    with np.errstate(divide="ignore"):
        return _Affine(data, *_STEPS[call.op.name](value.astype(np.float64)))


def _const(values: _Values) -> ir.Expr:
    return relax.const(values.astype(np.float32))
