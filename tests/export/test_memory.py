"""The memory of a library: the plan of its buffers, and its aligned weights with a checksum."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.export.memory import ALIGNMENT, align, checksum_of, pack_weights, plan_buffers
from anole.export.sequence import KernelCall, KernelSequence, Operand, TensorPlace


def sequence(sizes: list[int], used: list[list[int]]) -> KernelSequence:
    """Return a sequence whose steps use the buffers with the given numbers."""
    operands = [Operand(TensorPlace.BUFFER, number, (size,), "int8") for number, size in enumerate(sizes)]
    steps = [KernelCall("kernel", tuple(operands[number] for number in numbers)) for numbers in used]
    return KernelSequence(steps, [], sizes, [])


@st.composite
def sequences(draw: st.DrawFn) -> KernelSequence:
    sizes = draw(st.lists(st.integers(1, 500), min_size=1, max_size=8))
    numbers = st.lists(st.integers(0, len(sizes) - 1), max_size=3)
    return sequence(sizes, draw(st.lists(numbers, max_size=10)))


@given(sequences())
def test_live_buffers_do_not_overlap(kernels: KernelSequence) -> None:
    plan = plan_buffers(kernels)
    uses = {number: [] for number in range(len(kernels.buffers))}
    for position, step in enumerate(kernels.steps):
        for operand in step.operands:
            uses[operand.number].append(position)
    for position in range(len(kernels.steps)):
        alive = [number for number, at in uses.items() if at and at[0] <= position <= at[-1]]
        spans = sorted((plan.offsets[number], plan.offsets[number] + kernels.buffers[number]) for number in alive)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
        assert all(begin % ALIGNMENT == 0 and end <= plan.size_bytes for begin, end in spans)
    assert plan.size_bytes <= sum(map(align, kernels.buffers))


def test_a_chain_needs_two_buffers() -> None:
    plan = plan_buffers(sequence([64, 640, 128, 64], [[0, 1], [1, 2], [2, 3]]))
    assert plan.size_bytes == 640 + 128
    assert plan.offsets[0] == plan.offsets[2]


def test_unused_buffers_take_no_memory() -> None:
    assert plan_buffers(sequence([1000, 64], [[1]])).size_bytes == 64


def test_constants_are_aligned_and_can_be_read_back() -> None:
    constants = [np.arange(3, dtype=np.float32), np.array(7, np.int64), np.ones((5, 40), np.uint8)]
    weights = pack_weights(constants)
    assert len(weights.content) % 64 == 0 and len(pack_weights([]).content) == 64
    for constant, offset in zip(constants, weights.offsets, strict=True):
        assert offset % 64 == 0
        found = np.frombuffer(weights.content, constant.dtype, constant.size, offset)
        np.testing.assert_array_equal(found, constant.ravel())


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
