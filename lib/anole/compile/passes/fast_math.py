"""Transcendental operators as polynomials, which vectorise; library functions are called lane by lane.

Relative errors, measured against float64, are within a few units of float32's last place. A value that a polynomial
needs several times is bound to a variable; written out, the expression would be a page long for each vector of a
register tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import inf, log, nan, pi
from typing import Any

from tvm import ir, relax, te, tirx, topi

Legalize = Callable[[relax.BlockBuilder, ir.Call], ir.Expr]
Value = Any

_MOST_EXPONENT = 88.37626
"""The largest argument whose exponential, and the reciprocal of that, are finite and non-zero."""

_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_TANH = (
    *(-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08),
    *(1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03),
)
_TANH_BELOW = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
_ERF = (
    *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
    *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
)
_ERF_BELOW = (
    *(-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03),
    -1.42647390514189e-02,
)
_LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
_LEAST_NORMAL, _BITS = 2.0**-126, 23
"""The least normal float32, and the number of bits of its fraction."""


def fast_math_map() -> dict[str, Legalize]:
    """Returns the legalisation of each operator; types other than float32 keep TVM's definition."""
    return {
        "relax.exp": _legalize(_elementwise(_exp)),
        "relax.tanh": _legalize(_elementwise(_tanh)),
        "relax.erf": _legalize(_elementwise(_erf)),
        "relax.log": _legalize(_elementwise(_log)),
        "relax.sigmoid": _legalize(_elementwise(_sigmoid)),
        "relax.nn.silu": _legalize(_elementwise(_silu)),
        "relax.nn.gelu": _legalize(_elementwise(_gelu)),
        "relax.nn.gelu_tanh": _legalize(_elementwise(_gelu_tanh)),
        "relax.nn.softmax": _legalize(topi.nn.fast_softmax, "axis"),
    }


def exponential(value: Value) -> Value:
    """Returns the exponential of a float32 value."""
    return _bound(value, _exp)


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
        return te.compute(data.shape, lambda *i: _bound(data(*i), function), name=function.__name__[1:])

    return definition


def _exp(x: Value) -> Value:
    """Computes 2^n times a polynomial of the remainder (Cephes, expf)."""

    def scaled(power: Value, rest: Value) -> Value:
        factor = tirx.reinterpret("float32", (tirx.Cast("int32", power) + 127) << 23)
        return factor * (1.0 + rest + rest * rest * _polynomial(rest, _EXP))

    def of_power(x: Value, power: Value) -> Value:
        return _bound(x - power * _const(log(2)), lambda rest: scaled(power, rest))

    def within(x: Value) -> Value:
        return _bound(tirx.floor(x * _const(1 / log(2)) + _const(0.5)), lambda power: of_power(x, power))

    # exp(x) > x for all finite x; the maximum only passes on infinity and NaN.
    return tirx.max(_bound(_clip(x, _MOST_EXPONENT), within), x)


def _tanh(x: Value) -> Value:
    """Computes tanh as a ratio of polynomials (Eigen)."""
    return _bound(_clip(x, 9.0), lambda x: _odd_ratio(x, _TANH, _TANH_BELOW))


def _erf(x: Value) -> Value:
    """Computes erf as a ratio of polynomials (Eigen)."""
    return _bound(_clip(x, 4.0), lambda x: _odd_ratio(x, _ERF, _ERF_BELOW))


def _log(x: Value) -> Value:
    """Computes the logarithm from the argument's exponent and a polynomial of its fraction (Cephes, logf)."""

    def near_one(rest: Value, power: Value) -> Value:
        square = rest * rest
        return rest + (square * (rest * _polynomial(rest, _LOG) - _const(0.5)) + power * _const(log(2)))

    def of_parts(fraction: Value, power: Value) -> Value:
        is_large = fraction > _const(2**0.5)
        rest = tirx.Select(is_large, fraction * _const(0.5), fraction) - 1.0
        whole = tirx.Cast("float32", power) + tirx.Select(is_large, _const(1.0), _const(0.0))
        return _bound(rest, lambda rest: _bound(whole, lambda power: near_one(rest, power)))

    def of_bits(bits: Value, shift: Value) -> Value:
        fraction = tirx.reinterpret("float32", (bits & ((1 << _BITS) - 1)) | (127 << _BITS))
        return _bound(fraction, lambda fraction: of_parts(fraction, (bits >> _BITS) - 127 - shift))

    is_small = x < _const(_LEAST_NORMAL)
    normal = tirx.Select(is_small, x * _const(2.0**_BITS), x)
    shift = tirx.Select(is_small, tirx.const(_BITS, "int32"), tirx.const(0, "int32"))
    found = _bound(tirx.reinterpret("int32", normal), lambda bits: of_bits(bits, shift))
    outside = tirx.Select(x >= 0.0, _const(-inf), _const(nan))
    return tirx.Select(x > 0.0, tirx.Select(x < _const(inf), found, x), outside)


def _sigmoid(x: Value) -> Value:
    return 1.0 / (1.0 + _bound(-x, _exp))


def _silu(x: Value) -> Value:
    return x / (1.0 + _bound(-x, _exp))


def _gelu(x: Value) -> Value:
    return x * _const(0.5) * (1.0 + _bound(x * _const(0.5**0.5), _erf))


def _gelu_tanh(x: Value) -> Value:
    inner = x * (_const((2 / pi) ** 0.5) + _const((2 / pi) ** 0.5 * 0.044715) * x * x)
    return x * _const(0.5) * (1.0 + _bound(inner, _tanh))


def _odd_ratio(x: Value, above: Sequence[float], below: Sequence[float]) -> Value:
    return _bound(x * x, lambda square: x * _polynomial(square, above) / _polynomial(square, below))


def _polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Evaluates by Horner's rule; the coefficient of the highest power comes first."""
    return reduce(lambda sum_, coefficient: sum_ * x + _const(coefficient), coefficients[1:], _const(coefficients[0]))


def _clip(x: Value, limit: float) -> Value:
    return tirx.max(tirx.min(x, _const(limit)), _const(-limit))


def _bound(value: Value, use: Callable[[Value], Value]) -> Value:
    """Returns an expression of a variable that holds the value."""
    variable = tirx.Var("x", value.ty)
    return tirx.Let(variable, value, use(variable))


def _const(value: float) -> Value:
    return tirx.const(value, "float32")
