"""Polynomial approximations of transcendental functions, which vectorize, unlike calls of the math library.

Relative errors against float64 are within a few float32 ulp. Values that a polynomial uses several times are bound to
variables; otherwise, expressions would grow to a page for each vector of a register tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import inf, log, nan, pi
from typing import Any

from tvm import tirx

Value = Any

_ZERO_EXP, _INFINITE_EXP = -104.0, 89.0
"""Arguments below and above which exponentials round to zero and to infinity."""

_ROUNDING_SHIFT = 1.5 * 2**23 + 2 * 127
"""Adding this rounds a float to an integer n; the low bits of the sum are n + 254."""

_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1, 1.0, 1.0)
_TANH = (
    *(-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08),
    *(1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03),
)
_TANH_DENOMINATOR = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
_ERF = (
    *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
    *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
)
_ERF_DENOMINATOR = (
    *(-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03),
    -1.42647390514189e-02,
)
_LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
_MIN_NORMAL, _FRACTION_BITS = 2.0**-126, 23
"""The smallest normal float32, and the number of fraction bits."""


def exp(x: Value) -> Value:
    """Compute 2^n times a polynomial of the remainder (Cephes, expf); correct for subnormal results, too."""
    bounded = tirx.max(const(_ZERO_EXP), tirx.min(const(_INFINITE_EXP), x))
    return bound(bounded, lambda x: _exp(x, _ROUNDING_SHIFT, _multiply_by_power))


def exp_nonpositive(x: Value) -> Value:
    """Compute `exp` of values of at most 0 in fewer operations; results below the smallest normal float are 0."""

    def multiply(value: Value, bits: Value) -> Value:
        return value * tirx.reinterpret("float32", bits << _FRACTION_BITS)

    return tirx.Select(x < const(-87.33), const(0.0), _exp(x, 1.5 * 2**23 + 127, multiply))


def tanh(x: Value) -> Value:
    """Compute tanh as a ratio of polynomials (Eigen)."""
    return bound(_clip(x, 9.0), lambda x: _odd_ratio(x, _TANH, _TANH_DENOMINATOR))


def erf(x: Value) -> Value:
    """Compute erf as a ratio of polynomials (Eigen)."""
    return bound(_clip(x, 4.0), lambda x: _odd_ratio(x, _ERF, _ERF_DENOMINATOR))


def logarithm(x: Value) -> Value:
    """Compute the logarithm from the argument's exponent and a polynomial of its fraction (Cephes, logf)."""

    def combine(remainder: Value, power: Value) -> Value:
        square = remainder * remainder
        return remainder + (square * (remainder * _polynomial(remainder, _LOG) - const(0.5)) + power * const(log(2)))

    def reduce_fraction(fraction: Value, power: Value) -> Value:
        is_large = fraction > const(2**0.5)
        remainder = tirx.Select(is_large, fraction * const(0.5), fraction) - 1.0
        total_power = tirx.Cast("float32", power) + tirx.Select(is_large, const(1.0), const(0.0))
        return bound(remainder, lambda remainder: bound(total_power, lambda power: combine(remainder, power)))

    def split_bits(bits: Value, shift: Value) -> Value:
        fraction = tirx.reinterpret("float32", (bits & ((1 << _FRACTION_BITS) - 1)) | (127 << _FRACTION_BITS))
        return bound(fraction, lambda fraction: reduce_fraction(fraction, (bits >> _FRACTION_BITS) - 127 - shift))

    is_small = x < const(_MIN_NORMAL)
    normal = tirx.Select(is_small, x * const(2.0**_FRACTION_BITS), x)
    shift = tirx.Select(is_small, tirx.const(_FRACTION_BITS, "int32"), tirx.const(0, "int32"))
    result = bound(tirx.reinterpret("int32", normal), lambda bits: split_bits(bits, shift))
    outside = tirx.Select(x >= 0.0, const(-inf), const(nan))
    return tirx.Select(x > 0.0, tirx.Select(x < const(inf), result, x), outside)


def sigmoid(x: Value) -> Value:
    """Compute 1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + bound(-x, exp))


def silu(x: Value) -> Value:
    """Compute x sigmoid(x)."""
    return x / (1.0 + bound(-x, exp))


def gelu(x: Value) -> Value:
    """Compute x times the standard normal CDF of x."""
    return x * const(0.5) * (1.0 + bound(x * const(0.5**0.5), erf))


def gelu_tanh(x: Value) -> Value:
    """Compute the tanh approximation of gelu."""
    inner = x * (const((2 / pi) ** 0.5) + const((2 / pi) ** 0.5 * 0.044715) * x * x)
    return x * const(0.5) * (1.0 + bound(inner, tanh))


def _exp(x: Value, shift: float, multiply: Callable[[Value, Value], Value]) -> Value:
    """Compute e^x; adding `shift` rounds to an integer n, and `multiply` multiplies by 2^n, given the sum's bits."""

    def scale(remainder: Value, shifted: Value) -> Value:
        bits = tirx.reinterpret("int32", shifted)
        return bound(bits, lambda bits: multiply(_polynomial(remainder, _EXP), bits))

    def subtract_power(shifted: Value) -> Value:
        remainder = x - (shifted + const(-shift)) * const(log(2))
        return bound(remainder, lambda remainder: scale(remainder, shifted))

    return bound(x * const(1 / log(2)) + const(shift), subtract_power)


def _multiply_by_power(value: Value, bits: Value) -> Value:
    """Multiply by 2^n in two steps, since 2^128 and 2^-127 are not normal floats; the low bits of `bits` are n + 254.

    The biased exponents of both factors add up to n + 254; higher bits are shifted out.
    """
    exponents = bits << _FRACTION_BITS

    def scale(half: Value) -> Value:
        return value * tirx.reinterpret("float32", half) * tirx.reinterpret("float32", exponents - half)

    return bound((bits >> 1) << _FRACTION_BITS, scale)


def _odd_ratio(x: Value, numerator: Sequence[float], denominator: Sequence[float]) -> Value:
    return bound(x * x, lambda square: x * _polynomial(square, numerator) / _polynomial(square, denominator))


def _polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Evaluate by Horner's rule, highest power first."""
    return reduce(lambda sum_, coefficient: sum_ * x + const(coefficient), coefficients[1:], const(coefficients[0]))


def _clip(x: Value, limit: float) -> Value:
    return tirx.max(const(-limit), tirx.min(const(limit), x))


def bound(value: Value, use: Callable[[Value], Value]) -> Value:
    """Bind a value to a variable, and return the expression that uses it."""
    variable = tirx.Var("x", value.ty)
    return tirx.Let(variable, value, use(variable))


def const(value: float) -> Value:
    """Return a float32 constant."""
    return tirx.const(value, "float32")
