"""Winograd's minimal filtering F(m, r): exact matrices for any size, and sums that apply them.

In one dimension, m outputs of a filter with r taps take m + r - 1 multiplications: ``y = A^T [(G g) * (B^T d)]``. In
two dimensions they take the square of that: ``Y = A^T [(G g G^T) * (B^T d B)] A`` (Lavin and Gray, "Fast Algorithms for
Convolutional Neural Networks", 2016). The matrices are the transposes of those of the Toom-Cook product of two
polynomials, which multiplies the polynomials' values at m + r - 1 points.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, reduce
from math import prod
from operator import add, sub
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx

Matrix = tuple[tuple[Fraction, ...], ...]

POINTS = tuple(map(Fraction, ("0", "1", "-1", "1/2", "-2", "-1/2", "2")))
"""Evaluation points of the polynomials, besides infinity; a filtering takes the first ones that it needs.

These lose little precision. At 512 channels of normal data, in float32 against float64, F(4x4, 3x3) has a relative L2
error of 2.7e-6 with 0, 1, -1, 1/2, -2, of 4.2e-6 with the usual 0, 1, -1, 2, -2, and of 4.7e-6 with 0, 1, -1, 1/2,
-1/2. F(2x2, 3x3) has 0.7e-6, direct convolution 1.2e-6.
"""


@dataclass(frozen=True)
class Filtering:
    """The matrices of F(m, r), with m + r - 1 = n products.

    Attributes:
        data: B^T, shape (n, n).
        weight: G, shape (n, r).
        output: A^T, shape (m, n).
    """

    data: Matrix
    weight: Matrix
    output: Matrix

    def transform_weight(self, weight: NDArray[Any]) -> NDArray[np.float64]:
        """Returns G g G^T for weights of shape (r, r, ...), shape (n, n, ...)."""
        matrix = np.array(self.weight, dtype=np.float64)
        return np.asarray(np.einsum("ay,bx,yx...->ab...", matrix, matrix, weight.astype(np.float64), optimize=True))


@cache
def minimal_filtering(outputs: int, taps: int, points: tuple[Fraction, ...] = POINTS) -> Filtering:
    """Returns the matrices of F(outputs, taps).

    Args:
        outputs: m, the number of outputs computed together.
        taps: r, the number of taps of the filter.
        points: at least m + r - 2 different points; infinity is added to those that are taken.

    Raises:
        ValueError: there are too few points.
    """
    products = outputs + taps - 1
    finite = points[: products - 1]
    if len(set(finite)) < products - 1:
        raise ValueError(f"F({outputs}, {taps}) needs {products - 1} different points; found {len(set(finite))}")
    data, weight = [], []
    for point in finite:
        others = [other for other in finite if other != point]
        data.append((*_monic(others), Fraction(0)))
        # The divisor could go into the data's row instead, but the weight is transformed only once.
        divisor = prod((point - other for other in others), start=Fraction(1))
        weight.append(tuple(point**power / divisor for power in range(taps)))
    data.append(_monic(finite))
    weight.append(tuple(Fraction(power == taps - 1) for power in range(taps)))
    output = [(*(point**power for point in finite), Fraction(power == outputs - 1)) for power in range(outputs)]
    return Filtering(tuple(data), tuple(weight), tuple(output))


def _monic(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Returns the coefficients, constant first, of the monic polynomial with these roots."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted, scaled = [Fraction(0), *coefficients], [*(root * each for each in coefficients), Fraction(0)]
        coefficients = list(map(sub, shifted, scaled))
    return tuple(coefficients)


def weighted_sum(row: Iterable[Fraction], values: Iterable[Any]) -> Any:
    """Returns the dot product of a row and values, with one multiplication for each magnitude other than 1.

    If all coefficients are negative, it takes one more.

    Args:
        row: coefficients, not all of them zero, that are exact in binary.
        values: as many numbers or expressions; those with a coefficient of zero are not used.
    """
    of_magnitude: dict[Fraction, list[tuple[bool, Any]]] = {}
    for coefficient, value in zip(row, values, strict=True):
        if coefficient:
            of_magnitude.setdefault(abs(coefficient), []).append((coefficient > 0, value))
    products = []
    for magnitude, terms in of_magnitude.items():
        positive, total = _signed_sum(terms)
        products.append((positive, total if magnitude == 1 else total * float(magnitude)))
    positive, total = _signed_sum(products)
    return total if positive else total * -1.0


def _signed_sum(terms: Sequence[tuple[bool, Any]]) -> tuple[bool, Any]:
    """Returns the sum of signed terms, and whether the sum is to be added; False means to be subtracted."""
    added, subtracted = ([value for positive, value in terms if positive is sign] for sign in (True, False))
    if not added:
        return False, reduce(add, subtracted)
    return True, reduce(sub, subtracted, reduce(add, added))


def transformed(matrix: Matrix, index: Any, values: Sequence[Any]) -> Any:
    """Returns one element of a matrix-vector product, as an expression.

    Args:
        matrix: shape (n, m).
        index: index of the element, below n; unless its loop is unrolled, it becomes a chain of conditions.
        values: m expressions.
    """
    *rows, last = (weighted_sum(row, values) for row in matrix)
    pairs = reversed(list(enumerate(rows)))
    return reduce(lambda rest, row: tirx.if_then_else(index == row[0], row[1], rest), pairs, last)
