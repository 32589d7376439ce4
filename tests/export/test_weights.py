"""The block of weights: where constants lie, and a checksum that every change of a word changes."""

from __future__ import annotations

import numpy as np
import pytest

from anole.export.weights import checksum_of, pack_weights


def test_constants_are_aligned_and_found_again() -> None:
    constants = [np.arange(3, dtype=np.float32), np.array(7, np.int64), np.ones((5, 40), np.uint8)]
    weights = pack_weights(constants)
    assert len(weights.content) % 64 == 0
    for constant, offset in zip(constants, weights.offsets, strict=True):
        assert offset % 64 == 0
        found = np.frombuffer(weights.content, constant.dtype, constant.size, offset)
        np.testing.assert_array_equal(found, constant.ravel())


def test_a_network_may_have_no_constants() -> None:
    assert len(pack_weights([]).content) == 64


@pytest.mark.parametrize("size", [64, 64 * 8192, 64 * 20000])
def test_the_checksum_is_a_polynomial_in_each_lane(size: int) -> None:
    body = np.random.default_rng(0).bytes(size)
    lanes, factor = [0] * 8, 0x9E3779B97F4A7C15
    for at in range(0, size, 64):
        words = np.frombuffer(body, "<u8", 8, at).tolist()
        lanes = [(lane * factor + word) % 2**64 for lane, word in zip(lanes, words, strict=True)]
    expected = 0
    for lane in lanes:
        expected = (expected * factor + lane) % 2**64
    assert checksum_of(body) == expected
    changed = bytearray(body)
    changed[size // 2] ^= 128
    assert checksum_of(bytes(changed)) != expected
