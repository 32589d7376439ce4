"""Legalises transcendental operators as polynomials, which vectorise."""

from __future__ import annotations

from collections.abc import Callable

from tvm import ir, relax, te, topi

from anole.targets.shared import polynomials
from anole.targets.shared.polynomials import Value, bound

Legalize = Callable[[relax.BlockBuilder, ir.Call], ir.Expr]


def fast_math_map() -> dict[str, Legalize]:
    """Returns the legalisation of each operator; types other than float32 keep TVM's definition."""
    return {
        "relax.exp": _legalize(_elementwise(polynomials.exp)),
        "relax.tanh": _legalize(_elementwise(polynomials.tanh)),
        "relax.erf": _legalize(_elementwise(polynomials.erf)),
        "relax.log": _legalize(_elementwise(polynomials.logarithm)),
        "relax.sigmoid": _legalize(_elementwise(polynomials.sigmoid)),
        "relax.nn.silu": _legalize(_elementwise(polynomials.silu)),
        "relax.nn.gelu": _legalize(_elementwise(polynomials.gelu)),
        "relax.nn.gelu_tanh": _legalize(_elementwise(polynomials.gelu_tanh)),
        "relax.nn.softmax": _legalize(topi.nn.fast_softmax, "axis"),
    }


def _legalize(definition: Callable[..., te.Tensor], *attributes: str) -> Legalize:
    def legalize(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
        if str(call.ty.dtype) != "float32":
            return call.op.get_attr("FLegalize")(bb, call)
        settings = [getattr(call.attrs, name) for name in attributes]
        hint = str(call.op.name).rpartition(".")[2]
        return bb.call_te(definition, call.args[0], *settings, primfunc_name_hint=hint)

    return legalize


def _elementwise(function: Callable[[Value], Value]) -> Callable[[te.Tensor], te.Tensor]:
    def definition(data: te.Tensor) -> te.Tensor:
        return te.compute(data.shape, lambda *i: bound(data(*i), function), name=function.__name__)

    return definition
