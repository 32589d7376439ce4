"""Layers and poolings on the simulated hardware are bit-equal to the integer reference."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from anole.errors import ConfigError
from anole.task import Conv2d
from anole_vta.geometry import DEFAULT, Geometry, Memory
from anole_vta.isa import AluOpcode, Load, decode, encode
from anole_vta.network.network import AcceleratorLayer, IntegerReference, Pool, run_quantized
from anole_vta.network.pool import lower_pool
from anole_vta.network.simulated_accelerator import SimulatedAccelerator, can_add, epilogue_of, load_step
from anole_vta.simulator.timing import simulate
from anole_vta.templates.conv2d import Immediate
from anole_vta.templates.design import default_config

from ...examples import examples
from ..conftest import STEPS

PLUS = Geometry(variant="vta++")


def no_host(function, arguments):
    raise AssertionError("there is nothing for the host")


@settings(max_examples=examples(400), deadline=None)
@given(STEPS)
def test_a_step_is_bit_equal_to_the_reference_and_its_program_runs_to_its_end(case):
    loaded = case.load()
    hardware = SimulatedAccelerator({case.step.result: loaded})
    found, expected = (
        run_quantized(case.network, case.inputs, no_host, accelerator)["y"]
        for accelerator in (hardware, IntegerReference())
    )
    assert found.numbers.dtype == expected.numbers.dtype == np.int8 and found.exponent == expected.exponent
    np.testing.assert_array_equal(found.numbers, expected.numbers)
    # Every instruction can be encoded, and the tokens let the program finish.
    g, program = case.geometry, loaded.program.instructions
    assert [decode(encode(each, g), g) for each in program] == list(program)
    assert simulate(program, g).cycles > 0


def layer(geometry=DEFAULT, **changes):
    """Return a pointwise layer with the channels of one block, and a shift of 4."""
    w = changes.pop("workload", Conv2d(1, 4, 4, geometry.block_in, geometry.block_out, (1, 1)))
    fields = {"residual": None, "result_exponent": 4, "low": -127, "high": 127} | changes
    return AcceleratorLayer(
        *("layer", w, default_config(w, geometry), "x", "y"),
        **{"data_exponent": 0, "weight_exponent": 0, "residual_exponent": 0} | fields,
        result_shape=(w.batch, w.out_height, w.out_width, w.out_channels),
        weight=np.ones((*w.kernel, w.in_channels, w.out_channels), np.int8),
        bias=np.zeros(w.out_channels, np.int32),
    )


def test_a_shift_of_zero_has_no_instruction():
    opcodes = [step.opcode for step in epilogue_of(layer(result_exponent=0), DEFAULT) if isinstance(step, Immediate)]
    assert opcodes == [AluOpcode.MIN, AluOpcode.MAX]


@pytest.mark.parametrize(
    ("variant", "low", "opcodes"),
    [
        ("vta", -127, [AluOpcode.SHR, AluOpcode.MIN, AluOpcode.MAX]),
        ("vta++", -127, [AluOpcode.SHR, AluOpcode.CLP]),
        ("vta++", 0, [AluOpcode.SHR, AluOpcode.MIN, AluOpcode.MAX]),
    ],
)
def test_a_symmetric_range_is_one_instruction_on_vta_plus_plus(variant, low, opcodes):
    steps = epilogue_of(layer(low=low), Geometry(variant=variant))
    assert [step.opcode for step in steps if isinstance(step, Immediate)] == opcodes


def test_a_residual_takes_room_among_the_accumulators():
    small = Geometry(acc_bytes=1 << 13)
    w = Conv2d(1, 9, 9, 16, 16, (1, 1))
    whole, rows = (
        {"tile_b": 1, "tile_ci": 16, "tile_co": 16, "h_threading": 1, "oc_threading": 1, "tile_h": h, "tile_w": 9}
        for h in (9, 3)
    )
    assert not can_add(w, whole, small) and can_add(w, rows, small) and can_add(w, whole, DEFAULT)


def test_a_layer_whose_config_does_not_fit_the_geometry_is_refused():
    with pytest.raises(ConfigError, match="scratchpad overflow"):
        load_step(layer(workload=Conv2d(1, 12, 12, 16, 16, (1, 1))), Geometry(acc_bytes=1 << 10))


def test_rows_that_do_not_fit_together_are_cut_into_tiles():
    pool = Pool("pool", (3, 3), (2, 2), (1, 1, 1, 1), "x", "y", 0)
    tiles = {
        acc_bytes: sum(
            isinstance(each, Load) and each.memory == Memory.ACC
            for each in lower_pool(pool, (1, 17, 17, 16), Geometry(acc_bytes=acc_bytes, variant="vta++")).instructions
        )
        for acc_bytes in (1 << 17, 1 << 13)
    }
    assert tiles[1 << 17] == 1 and tiles[1 << 13] > 2


@pytest.mark.parametrize(
    ("pool", "shape", "geometry", "message"),
    [
        (((3, 3), (2, 2), (1, 1, 1, 1)), (1, 8, 1200, 16), PLUS, "a row of 600 results does not fit 2048 accumulators"),
        (((18, 18), (1, 1), (16, 16, 16, 16)), (1, 6, 6, 16), PLUS, "a border of more than 15 does not fit a load"),
        (((2, 2), (2, 2), (0, 0, 0, 0)), (1, 8, 8, 16), replace(PLUS, inp_bytes=1 << 8), "too long for the fields"),
        (((2, 2), (2, 2), (0, 0, 0, 0)), (1, 8, 8, 16), DEFAULT, "vta cannot pad a tile"),
    ],
)
def test_an_impossible_pooling_has_a_reason(pool, shape, geometry, message):
    with pytest.raises(ConfigError, match=message):
        load_step(Pool("pool", *pool, "x", "y", 0), geometry, shape)
