"""Layers and poolings on the simulated hardware are, bit for bit, what the reference of whole numbers computes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.errors import ConfigError
from anole.targets.vta.geometry import DEFAULT, Geometry
from anole.targets.vta.isa import AluOpcode, decode, encode
from anole.targets.vta.network.network import AcceleratorLayer, IntegerReference, Pool, run_quantized
from anole.targets.vta.network.simulated_accelerator import (
    SimulatedAccelerator,
    can_add,
    epilogue_of,
    load_step,
)
from anole.targets.vta.simulator.timing import simulate
from anole.targets.vta.templates.conv2d import Immediate
from anole.targets.vta.templates.design import default_config
from anole.task import Conv2d

from ....examples import examples


def no_host(function, arguments):
    raise AssertionError("there is nothing for the host")


@settings(max_examples=examples(400), deadline=None)
@given(data=st.data())
def test_a_step_is_bit_equal_to_the_reference_and_its_program_runs_to_its_end(steps, data):
    case = data.draw(steps)
    loaded = case.load()
    hardware = SimulatedAccelerator({case.step.result: loaded})
    found, expected = (
        run_quantized(case.network, case.inputs, no_host, accelerator)["y"]
        for accelerator in (hardware, IntegerReference())
    )
    assert found.numbers.dtype == expected.numbers.dtype == np.int8 and found.exponent == expected.exponent
    np.testing.assert_array_equal(found.numbers, expected.numbers)
    # Every instruction has its bits, and its tokens let the program run to its end.
    g, program = case.geometry, loaded.program.instructions
    assert [decode(encode(each, g), g) for each in program] == list(program)
    assert simulate(program, g).cycles > 0


def layer(geometry=DEFAULT, **changes):
    """Returns a pointwise layer of as many channels as a block has, which shifts by 4."""
    w = changes.pop("workload", Conv2d(1, 4, 4, geometry.block_in, geometry.block_out, (1, 1)))
    fields = {"residual": None, "result_exponent": 4, "low": -127, "high": 127} | changes
    return AcceleratorLayer(
        *("layer", w, default_config(w, geometry), "x", "y"),
        **{"data_exponent": 0, "weight_exponent": 0, "residual_exponent": 0} | fields,
        result_shape=(w.batch, w.out_height, w.out_width, w.out_channels),
        weight=np.ones((*w.kernel, w.in_channels, w.out_channels), np.int8),
        bias=np.zeros(w.out_channels, np.int32),
    )


def test_what_is_not_shifted_has_no_shift():
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
        load_step(layer(workload=Conv2d(1, 12, 12, 16, 16, (1, 1))), (), Geometry(acc_bytes=1 << 10))


def test_only_vta_plus_plus_pools():
    pool = Pool("pool", (2, 2), (2, 2), (0, 0, 0, 0), "x", "y", 0)
    assert load_step(pool, (1, 8, 8, 16), Geometry(variant="vta++"))
    with pytest.raises(ConfigError, match="vta cannot surround a tile"):
        load_step(pool, (1, 8, 8, 16), DEFAULT)
