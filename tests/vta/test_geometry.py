"""Geometries: derived sizes, names, and invalid values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.errors import TargetError
from anole_vta.geometry import DEFAULT, Geometry, Memory


def test_the_default_is_vta():
    assert [DEFAULT.depth(memory) for memory in Memory] == [8192, 1024, 2048, 2048, 2048]
    assert [DEFAULT.element_bytes(memory) for memory in Memory] == [4, 256, 16, 64, 16]
    assert [DEFAULT.index_bits(memory) for memory in Memory] == [13, 10, 11, 11, 11]
    assert DEFAULT.sram_bits == 8 * (480 + 24) * 1024


def test_a_larger_block_makes_every_buffer_shallower():
    large = Geometry(block_in=32, block_out=32)
    assert [large.depth(memory) for memory in (Memory.INP, Memory.WGT, Memory.ACC)] == [1024, 256, 1024]


def test_a_geometry_is_read_back_from_json():
    geometry = Geometry(batch=2, block_out=32, variant="vta++")
    assert Geometry.from_json(geometry.to_json()) == geometry
    assert Geometry.from_json({}) == DEFAULT


@given(
    st.fixed_dictionaries(
        {"variant": st.sampled_from(["vta", "vta++"])},
        optional={
            name: st.integers(0, 18).map(lambda log: 1 << log)
            for name, value in DEFAULT.to_json().items()
            if name != "variant" and value
        },
    )
)
def test_every_geometry_has_a_unique_name(plain):
    try:
        geometry = Geometry.from_json(plain)
    except TargetError:
        return
    assert Geometry.from_name(geometry.name) == geometry
    assert geometry == DEFAULT or geometry.name != DEFAULT.name


def test_names_are_those_of_vtas_configurations():
    assert DEFAULT.name == "1x16x16_i8w8a32_15_15_18_17"
    other = Geometry(block_out=64, acc_bytes=1 << 16, bus_bytes=16, queue_entries=32, burst_beats=8, variant="vta++")
    assert other.name == "1x16x64_i8w8a32_15_15_18_16_bus128_burst8_queue32_vta++"


@pytest.mark.parametrize("name", ["", "1x16x16", "1x16x16_i8w8a32_15_15_18", "1x16x16_i8w4a32_15_15_18_17", "16x16"])
def test_invalid_names_are_refused(name):
    with pytest.raises(TargetError, match=r"geometry: found .*; use a name such as 1x16x16_i8w8a32_15_15_18_17"):
        Geometry.from_name(name)


@pytest.mark.parametrize("name", ["1x24x16_i8w8a32_15_15_18_17", "1x16x16_i8w8a32_15_999999_18_17_bus100"])
def test_names_of_invalid_geometries_are_refused(name):
    with pytest.raises(TargetError, match=r"allowed is a power of two|too deep"):
        Geometry.from_name(name)


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"block": 16}, "geometry.block: is unknown; allowed are batch, block_in"),
        ({"batch": 3}, "geometry.batch: found 3; allowed is a power of two"),
        ({"batch": True}, "geometry.batch: found True"),
        ({"block_in": 16.0}, "geometry.block_in: found 16.0; allowed is a power of two"),
        ({"variant": "vta+"}, "geometry.variant: found 'vta\\+'; allowed are vta, vta\\+\\+"),
        ({"bus_bytes": 4}, "geometry.bus_bytes: found 4; allowed are 8, 16, 32 and 64"),
        ({"block_in": 128, "block_out": 128}, "an element of WGT has 16384 bytes; at most 4096"),
        ({"block_in": 8, "block_out": 8}, "too deep for the fields of an instruction"),
        # VTA's ALU has four indices of accumulators, and VTA++'s two.
        ({"block_in": 32, "block_out": 8, "wgt_bytes": 1 << 17}, "too deep for the fields of an instruction"),
        ({"uop_bytes": 1 << 16}, "too deep for the fields of an instruction"),
        ({"inp_bytes": 8}, "the INP buffer cannot hold a single element"),
    ],
)
def test_invalid_geometries_are_refused(plain, message):
    with pytest.raises(TargetError, match=message):
        Geometry.from_json(plain)
