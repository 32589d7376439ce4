"""Maximum pooling on VTA++: programs against the reference, and what cannot be run."""

from __future__ import annotations

import numpy as np
import pytest

from anole.errors import ConfigError
from anole.targets.vta.geometry import Geometry, Memory
from anole.targets.vta.isa import Alu, Load
from anole.targets.vta.network.network import IntegerReference, Pool
from anole.targets.vta.network.pool import lower_pool
from anole.targets.vta.network.simulated_accelerator import SimulatedAccelerator, load_step

PLUS = Geometry(variant="vta++")


@pytest.mark.parametrize("acc_bytes", [1 << 17, 1 << 13])
@pytest.mark.parametrize(
    ("kernel", "strides", "padding", "size"),
    [
        ((2, 2), (2, 2), (0, 0, 0, 0), (7, 5)),
        ((3, 3), (2, 2), (1, 1, 1, 1), (9, 7)),
        ((3, 3), (2, 2), (0, 0, 1, 1), (8, 8)),
        ((2, 3), (1, 3), (1, 0, 0, 2), (5, 6)),
        ((1, 1), (2, 2), (0, 0, 0, 0), (5, 5)),
        # Of the smaller buffer, what rows share takes the room of one more row.
        ((3, 3), (2, 2), (1, 1, 1, 1), (13, 11)),
        ((3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    ],
)
def test_a_program_finds_the_largest_number_of_every_window(acc_bytes, kernel, strides, padding, size):
    pool = Pool("pool", kernel, strides, padding, "x", "y", 0)
    data = np.random.default_rng(0).integers(-128, 0, (1, *size, 20), np.int8)
    loaded = load_step(pool, data.shape, Geometry(acc_bytes=acc_bytes, variant="vta++"))
    found = SimulatedAccelerator({"y": loaded}).pool(pool, data)
    np.testing.assert_array_equal(found, IntegerReference().pool(pool, data))


def test_rows_that_do_not_fit_at_once_are_cut_into_tiles():
    pool = Pool("pool", (3, 3), (2, 2), (1, 1, 1, 1), "x", "y", 0)
    tiles = {
        acc_bytes: sum(
            isinstance(each, Load) and each.memory == Memory.ACC
            for each in lower_pool(pool, (1, 17, 17, 16), Geometry(acc_bytes=acc_bytes, variant="vta++")).instructions
        )
        for acc_bytes in (1 << 17, 1 << 13)
    }
    assert tiles[1 << 17] == 1 and tiles[1 << 13] > 2


def test_every_block_of_channels_and_every_image_is_pooled():
    pool = Pool("pool", (2, 2), (2, 2), (0, 0, 0, 0), "x", "y", 0)
    program = lower_pool(pool, (4, 4, 4, 48), Geometry(batch=2, variant="vta++"))
    assert sum(isinstance(each, Alu) for each in program.instructions) == 2 * 3 * 4


@pytest.mark.parametrize(
    ("pool", "shape", "message"),
    [
        (((3, 3), (2, 2), (1, 1, 1, 1)), (1, 8, 1200, 16), "a row of 600 results does not fit 2048 accumulators"),
        (((18, 18), (1, 1), (16, 16, 16, 16)), (1, 6, 6, 16), "a border of more than 15 does not fit a load"),
    ],
)
def test_what_does_not_fit_has_a_reason(pool, shape, message):
    with pytest.raises(ConfigError, match=message):
        lower_pool(Pool("pool", *pool, "x", "y", 0), shape, PLUS)


def test_a_row_that_is_too_long_for_an_instruction_has_a_reason():
    narrow = Geometry(inp_bytes=1 << 8, variant="vta++")
    with pytest.raises(ConfigError, match="too long for the fields"):
        lower_pool(Pool("pool", (2, 2), (2, 2), (0, 0, 0, 0), "x", "y", 0), (1, 8, 8, 16), narrow)
