"""Sizes that follow from a geometry, and geometries that cannot be."""

from __future__ import annotations

import pytest

from anole.errors import TargetError
from anole.targets.vta.geometry import DEFAULT, Geometry, Memory


def test_the_default_is_vtas_own():
    assert [DEFAULT.depth(memory) for memory in Memory] == [8192, 1024, 2048, 2048, 2048]
    assert [DEFAULT.element_bytes(memory) for memory in Memory] == [4, 256, 16, 64, 16]
    assert [DEFAULT.index_bits(memory) for memory in Memory] == [13, 10, 11, 11, 11]
    assert DEFAULT.sram_bits == 8 * (480 + 24) * 1024


def test_a_larger_block_makes_every_buffer_shallower():
    large = Geometry(block_in=32, block_out=32)
    assert [large.depth(memory) for memory in (Memory.INP, Memory.WGT, Memory.ACC)] == [1024, 256, 1024]


def test_it_is_read_back_from_its_plain_form():
    geometry = Geometry(batch=2, block_out=32, variant="vta++")
    assert Geometry.from_json(geometry.to_json()) == geometry
    assert Geometry.from_json({}) == DEFAULT


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
        # A VTA's ALU has four indices of accumulators, VTA++'s two.
        ({"block_in": 32, "block_out": 8, "wgt_bytes": 1 << 17}, "too deep for the fields of an instruction"),
        ({"uop_bytes": 1 << 16}, "too deep for the fields of an instruction"),
        ({"inp_bytes": 8}, "the INP buffer holds no single element"),
    ],
)
def test_what_cannot_be_is_refused(plain, message):
    with pytest.raises(TargetError, match=message):
        Geometry.from_json(plain)
