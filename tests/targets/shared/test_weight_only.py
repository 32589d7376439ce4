"""Weights in few bits: words hold what was put into them, in the scheme of fewest bits, and rounding is to nearest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.targets.shared.weight_only import StoredWeights, rows_of_block
from anole.task import WeightScheme

from ...examples import examples

SCHEMES = [WeightScheme(bits, block, zeros) for bits in (4, 8) for block in (8, 24, 64) for zeros in (False, True)]  # type: ignore[arg-type]


def drawn(scheme: WeightScheme, seed: int) -> StoredWeights:
    """Weights that need every bit of a scheme."""
    rng, most = np.random.default_rng(seed), 1 << scheme.bits
    numbers = rng.integers(0, most, (2, scheme.block, 5))
    numbers[:, 0], numbers[:, 1] = 0, most - 1
    zeros = rng.integers(0, most, (2, 1, 5)) // 2 if scheme.zeros else np.full((2, 1, 5), most // 2)
    zeros[0, 0, 0] -= scheme.zeros
    return StoredWeights((numbers - zeros).reshape(-1, 5).astype(np.int16), rng.standard_normal((2, 5), np.float32))


@settings(max_examples=examples(100))
@given(scheme=st.sampled_from(SCHEMES), seed=st.integers(0, 1 << 30))
def test_words_hold_weights_in_the_fewest_bits(scheme: WeightScheme, seed: int) -> None:
    stored = drawn(scheme, seed)
    assert stored.scheme == scheme
    words = stored.words(scheme)
    assert words.shape == (2 * rows_of_block(scheme), 5)
    np.testing.assert_array_equal(StoredWeights.read(words, scheme).values(), stored.values())


@pytest.mark.parametrize(("centered", "blocks"), [([[-300], [0]] * 8, 1), ([[1]] * 6, 1), ([[1]] * 9, 2)])
def test_some_weights_have_no_scheme(centered: list[list[int]], blocks: int) -> None:
    """More than 8 bits, no whole words, no whole blocks."""
    assert StoredWeights(np.array(centered, np.int16), np.ones((blocks, 1), np.float32)).scheme is None


@pytest.mark.parametrize("scheme", [WeightScheme(8, 64), WeightScheme(4, 32)])
def test_rounding_is_to_the_nearest_and_keeps_the_largest(scheme: WeightScheme) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 7), np.float32)
    weight[:, 3] = 0
    rounded = StoredWeights.rounded(weight, scheme)
    blocks, found = (each.reshape(-1, scheme.block, 7) for each in (weight, rounded.values()))
    # The number on the other side of zero, of which there is one less, may be a whole step away.
    steps = np.abs(rounded.scales)[:, None]
    assert (np.abs(found - blocks) <= np.where(found * rounded.scales[:, None] > 0, 1, 0.5) * steps * 1.001).all()
    largest = np.abs(blocks).max(1)
    np.testing.assert_allclose(np.abs(found).max(1), largest, rtol=1e-6)
    assert not rounded.values()[:, 3].any()
