"""Winograd's matrices are exact, and the sums that apply them use the minimum number of multiplications."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.targets.shared.winograd import POINTS, minimal_filtering, weighted_sum

from ...examples import examples

SIZES = [(m, r) for m, r in product(range(1, 8), range(1, 8)) if m + r - 2 <= len(POINTS[-1])]

exact = st.builds(lambda numerator, power: Fraction(numerator, 1 << power), st.integers(-9, 9), st.integers(0, 3))
"""Numbers that are exact in floating point, and so are their sums and products."""


@dataclass
class Count:
    """A counter of additions and multiplications."""

    additions: int = 0
    multiplications: int = 0


@dataclass
class Counted:
    """A number that counts the operations on it."""

    value: float
    count: Count = field(repr=False)

    def __add__(self, other: Counted) -> Counted:
        self.count.additions += 1
        return Counted(self.value + other.value, self.count)

    def __sub__(self, other: Counted) -> Counted:
        self.count.additions += 1
        return Counted(self.value - other.value, self.count)

    def __mul__(self, factor: float) -> Counted:
        self.count.multiplications += 1
        return Counted(self.value * factor, self.count)


@pytest.mark.parametrize(("m", "r"), SIZES)
def test_the_matrices_compute_the_filter(m: int, r: int) -> None:
    """Both sides are linear in data and weight, so checking all unit vectors of both proves the identity."""
    filtering = minimal_filtering(m, r)
    for output, tap, at in product(range(m), range(r), range(m + r - 1)):
        rows = zip(filtering.output[output], filtering.weight, filtering.data, strict=True)
        assert sum(a * g[tap] * b[at] for a, g, b in rows) == (at == output + tap)


@pytest.mark.parametrize(("m", "r"), SIZES)
def test_run_time_matrices_are_exact_in_float32(m: int, r: int) -> None:
    filtering = minimal_filtering(m, r)
    for row in (*filtering.data, *filtering.output):
        assert [Fraction(float(np.float32(each))) for each in row] == list(row)


@pytest.mark.parametrize("size", [2, 4])
def test_weights_are_transformed_along_both_axes(size: int) -> None:
    rng = np.random.default_rng(size)
    weight, data = rng.standard_normal((3, 3, 2, 5), dtype=np.float32), rng.standard_normal((size + 2, size + 2, 2))
    filtering = minimal_filtering(size, 3)
    b, a = np.array(filtering.data, dtype=float), np.array(filtering.output, dtype=float)
    products = np.einsum("abio,abi->abo", filtering.transform_weight(weight), np.einsum("ay,bx,yxi->abi", b, b, data))
    windows = np.lib.stride_tricks.sliding_window_view(data, (3, 3), axis=(0, 1))
    expected = np.einsum("yxiuv,uvio->yxo", windows, weight.astype(float))
    np.testing.assert_allclose(np.einsum("ya,xb,abo->yxo", a, a, products), expected, rtol=1e-10, atol=1e-10)


def test_too_few_points_are_reported() -> None:
    with pytest.raises(ValueError, match=r"F\(7, 4\) requires 9 points; there are 7"):
        minimal_filtering(7, 4)


@settings(max_examples=examples(200))
@given(row=st.lists(exact, min_size=1, max_size=8).filter(any), seed=st.integers(0, 1 << 30))
def test_a_sum_multiplies_once_for_each_magnitude(row: list[Fraction], seed: int) -> None:
    values, count = np.random.default_rng(seed).integers(-64, 64, len(row)), Count()
    counted_values = [Counted(float(value), count) if each else None for each, value in zip(row, values, strict=True)]
    expected = sum(each * int(value) for each, value in zip(row, values, strict=True))
    assert Fraction(weighted_sum(row, counted_values).value) == expected
    terms = [each for each in row if each]
    is_negated = all(each < 0 for each in terms)
    assert count.additions == len(terms) - 1
    assert count.multiplications <= len({abs(each) for each in terms} - {1}) + is_negated


def test_the_smallest_filtering_only_adds() -> None:
    count, filtering = Count(), minimal_filtering(2, 3)
    for row in (*filtering.data, *filtering.output):
        weighted_sum(row, [Counted(1.0, count)] * len(row))
    assert count == Count(additions=8, multiplications=0)
