"""Winograd's minimal filtering F(m, r): exact transform matrices for any size, and a convolution's transforms.

In one dimension, m outputs of a filter with r taps take m + r - 1 multiplications: ``y = A^T [(G g) * (B^T d)]``. In
two dimensions they take (m + r - 1)^2: ``Y = A^T [(G g G^T) * (B^T d B)] A`` (Lavin and Gray, "Fast Algorithms for
Convolutional Neural Networks", 2016). The matrices are the transposes of the Toom-Cook matrices for a product of
two polynomials, which multiplies the polynomials' values at m + r - 1 points.

Each target schedules the transforms in its own way. Their blocks are named ``winograd_patch``,
``winograd_data_columns`` and ``winograd_data``; ``winograd_output_columns`` and ``winograd``, which is the anchor. Each
target defines the products in between, because their kernel determines the layout of the weights.
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
from tvm import te, tirx

from anole.ir.nodes import chosen
from anole.targets.base import ANCHOR
from anole.targets.shared.output_tiles import OutputTiles
from anole.task import Conv2d

Matrix = tuple[tuple[Fraction, ...], ...]

POINTS = tuple(
    tuple(map(Fraction, points))
    for points in (("0", "1", "-1"), ("0", "3/4", "-3/4", "3/2", "-3/2"), ("0", "1", "-1", "1/2", "-1/2", "2", "-2"))
)
"""Evaluation points of the polynomials, besides infinity; a filtering uses a prefix of the smallest sufficient set.

Among quarters up to 4, a search found no set with a smaller error on independent random values. The relative L2 error
(float32 from float64, 256 channels of normal data) of F(4x4, 3x3) is 1.5e-6; it is 2.0e-6 with 0, 1, -1, 1/2, -2, and
3.2e-6 with the customary 0, 1, -1, 2, -2. F(2x2, 3x3) has 0.5e-6, F(6x6, 3x3) 6.0e-6, direct convolution 0.9e-6. If
neighboring values are correlated, as in images, the errors of F(4x4, 3x3) and F(6x6, 3x3) are a third as large.
"""


@dataclass(frozen=True)
class Filtering:
    """The matrices of F(m, r), with n = m + r - 1 products: B^T (n x n), G (n x r) and A^T (m x n)."""

    data: Matrix
    weight: Matrix
    output: Matrix

    def transform_weight(self, weight: NDArray[Any]) -> NDArray[np.float64]:
        """Return G g G^T, of shape (n, n, ...), for weights of shape (r, r, ...)."""
        matrix = np.array(self.weight, dtype=np.float64)
        products, taps = matrix.shape
        # Two plain matrix products: `einsum` would transpose the weights in between, and take 15 times as long.
        rows = matrix @ weight.astype(np.float64).reshape(taps, -1)
        result = matrix @ rows.reshape(products, taps, -1)
        return result.reshape(products, products, *weight.shape[2:])


@cache
def minimal_filtering(outputs: int, taps: int) -> Filtering:
    """Return the matrices of F(outputs, taps); raise ValueError if it needs more points than `POINTS` has."""
    count = outputs + taps - 2
    finite = next((points[:count] for points in POINTS if len(points) >= count), None)
    if finite is None:
        raise ValueError(f"F({outputs}, {taps}) requires {count} points; there are {len(POINTS[-1])}")
    data, weight = [], []
    for point in finite:
        other_points = [other for other in finite if other != point]
        data.append((*_monic(other_points), Fraction(0)))
        # The weight rather than the data is divided, because it is transformed only once.
        divisor = prod((point - other for other in other_points), start=Fraction(1))
        weight.append(tuple(point**power / divisor for power in range(taps)))
    data.append(_monic(finite))
    weight.append(tuple(Fraction(power == taps - 1) for power in range(taps)))
    output = [(*(point**power for point in finite), Fraction(power == outputs - 1)) for power in range(outputs)]
    return Filtering(tuple(data), tuple(weight), tuple(output))


def _monic(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Return the coefficients, constant first, of the monic polynomial with these roots."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted, scaled = [Fraction(0), *coefficients], [*(root * value for value in coefficients), Fraction(0)]
        coefficients = list(map(sub, shifted, scaled))
    return tuple(coefficients)


def weighted_sum(row: Iterable[Fraction], values: Iterable[Any]) -> Any:
    """Return the dot product of a row and values, with one multiplication for each magnitude other than 1.

    If all coefficients are negative, it takes one more multiplication. Coefficients must be exact in binary and not all
    zero; values with a zero coefficient are not used.
    """
    by_magnitude: dict[Fraction, list[tuple[bool, Any]]] = {}
    for coefficient, value in zip(row, values, strict=True):
        if coefficient:
            by_magnitude.setdefault(abs(coefficient), []).append((coefficient > 0, value))
    products = []
    for magnitude, terms in by_magnitude.items():
        positive, total = _signed_sum(terms)
        products.append((positive, total if magnitude == 1 else total * float(magnitude)))
    positive, total = _signed_sum(products)
    return total if positive else total * -1.0


def _signed_sum(terms: Sequence[tuple[bool, Any]]) -> tuple[bool, Any]:
    """Return the sign of the sum of signed terms (True: add it, False: subtract it), and the sum without this sign."""
    added, subtracted = ([value for positive, value in terms if positive is sign] for sign in (True, False))
    if not added:
        return False, reduce(add, subtracted)
    return True, reduce(sub, subtracted, reduce(add, added))


def transform(matrix: Matrix, index: Any, values: Sequence[Any]) -> Any:
    """Return the element of a matrix-vector product at an index."""
    return chosen(index, [weighted_sum(row, values) for row in matrix])


def transform_data(w: Conv2d, tiles: OutputTiles, filtering: Filtering, data: te.Tensor) -> te.Tensor:
    """Return B^T d B of every tile, (points, points, *axes, in); tiles beyond the last are zero or not computed."""
    top, left, _, _ = w.padding
    shape = (tiles.points, tiles.points, *tiles.axes, w.in_channels)

    def point(i: Any, j: Any, *at: Any) -> Any:
        *position, c = at
        tile = tiles.index_at(*position)
        n, y_first, x_first = tiles.first(tile)
        y, x = y_first + i * w.dilation[0] - top, x_first + j * w.dilation[1] - left
        inside = tirx.all(tile < tiles.count, y >= 0, y < w.height, x >= 0, x < w.width)
        return tirx.if_then_else(inside, data[n, y, x, c], tirx.const(0, w.dtype))

    def column(a: Any, j: Any, *at: Any) -> Any:
        return transform(filtering.data, a, [patch[(i, j, *at)] for i in range(tiles.points)])

    def both(a: Any, b: Any, *at: Any) -> Any:
        return transform(filtering.data, b, [columns[(a, j, *at)] for j in range(tiles.points)])

    patch = te.compute(shape, point, name="winograd_patch")
    columns = te.compute(shape, column, name="winograd_data_columns")
    return te.compute(shape, both, name="winograd_data")


def transform_product(w: Conv2d, tiles: OutputTiles, filtering: Filtering, product: te.Tensor) -> te.Tensor:
    """Return A^T M A of every tile, in NHWC, without surplus outputs of border tiles and padding of the last panel."""
    size, points = tiles.size, range(tiles.points)

    def half(y: Any, b: Any, *at: Any) -> Any:
        return transform(filtering.output, y, [product[(a, b, *at)] for a in points])

    def both(n: Any, y: Any, x: Any, f: Any) -> Any:
        tile, (row, column) = tiles.number(n, y, x), tiles.within(y, x)
        return transform(filtering.output, column, [columns[(row, b, *tiles.position_of(tile), f)] for b in points])

    columns = te.compute((size, *product.shape[1:]), half, name="winograd_output_columns")
    shape = (w.batch, w.out_height, w.out_width, w.out_channels)
    return te.compute(shape, both, name="winograd", attrs={ANCHOR: w.operator})
