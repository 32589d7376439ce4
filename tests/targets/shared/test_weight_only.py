"""Weight-only quantization: packing is lossless, in the scheme with the fewest bits, and rounding is to nearest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.targets.shared.weight_only import StoredWeights, rows_per_block
from anole.task import WeightScheme

from ...examples import examples

SCHEMES = [WeightScheme(bits, block, zeros) for bits in (4, 8) for block in (8, 24, 64) for zeros in (False, True)]  # type: ignore[arg-type]


def random_weights(scheme: WeightScheme, seed: int) -> StoredWeights:
    """Return random weights that need every bit of a scheme."""
    rng, levels = np.random.default_rng(seed), 1 << scheme.bits
    integers = rng.integers(0, levels, (2, scheme.block, 5))
    integers[:, 0], integers[:, 1] = 0, levels - 1
    zeros = rng.integers(0, levels, (2, 1, 5)) // 2 if scheme.zeros else np.full((2, 1, 5), levels // 2)
    zeros[0, 0, 0] -= scheme.zeros
    return StoredWeights((integers - zeros).reshape(-1, 5).astype(np.int16), rng.standard_normal((2, 5), np.float32))


@settings(max_examples=examples(100))
@given(scheme=st.sampled_from(SCHEMES), seed=st.integers(0, 1 << 30))
def test_weights_are_packed_losslessly_in_the_fewest_bits(scheme: WeightScheme, seed: int) -> None:
    stored = random_weights(scheme, seed)
    assert stored.scheme == scheme
    packed = stored.words(scheme)
    assert packed.shape == (2 * rows_per_block(scheme), 5)
    np.testing.assert_array_equal(StoredWeights.read(packed, scheme).values(), stored.values())


@pytest.mark.parametrize(("centered", "blocks"), [([[-300], [0]] * 8, 1), ([[1]] * 6, 1), ([[1]] * 9, 2)])
def test_some_weights_have_no_scheme(centered: list[list[int]], blocks: int) -> None:
    """They need more than 8 bits, do not fill packed words, or do not fill blocks."""
    assert StoredWeights(np.array(centered, np.int16), np.ones((blocks, 1), np.float32)).scheme is None


@pytest.mark.parametrize("scheme", [WeightScheme(8, 64), WeightScheme(4, 32)])
def test_rounding_is_to_nearest_and_keeps_the_largest_weight(scheme: WeightScheme) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 7), np.float32)
    weight[:, 3] = 0
    rounded = StoredWeights.quantize(weight, scheme)
    blocks, found = (each.reshape(-1, scheme.block, 7) for each in (weight, rounded.values()))
    # On the other side of zero there is one level less, so the error may be an entire step.
    steps = np.abs(rounded.scales)[:, None]
    assert (np.abs(found - blocks) <= np.where(found * rounded.scales[:, None] > 0, 1, 0.5) * steps * 1.001).all()
    largest = np.abs(blocks).max(1)
    np.testing.assert_allclose(np.abs(found).max(1), largest, rtol=1e-6)
    assert not rounded.values()[:, 3].any()
