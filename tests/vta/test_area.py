"""Area and memory, against gate mappings of the hardware."""

import pytest

from anole_vta.area import Bounds, area_gates, relative_area, relative_memory
from anole_vta.geometry import DEFAULT, Geometry

LARGE = Geometry(block_in=32, block_out=32)


@pytest.mark.parametrize(("geometry", "logic_gates"), [(DEFAULT, 388e3), (LARGE, 1306e3)])
def test_logic_matches_the_gate_mapping(geometry, logic_gates):
    assert area_gates(geometry) - 0.5 * geometry.sram_bits == pytest.approx(logic_gates, rel=0.03)


def test_area_and_memory_are_relative_to_vta():
    assert relative_area(DEFAULT) == relative_memory(DEFAULT) == 1
    assert relative_area(LARGE) == pytest.approx(1.38, abs=0.02)
    assert relative_area(Geometry(block_in=64, block_out=64)) == pytest.approx(2.8, abs=0.1)
    assert relative_memory(LARGE) == 1
    assert relative_area(Geometry(bus_bytes=64)) > 1


def test_only_excess_over_a_bound_is_penalized():
    bounds = Bounds(area_max=1.2, memory_max=0.5, penalty=10)
    excess = relative_area(LARGE) - 1.2 + 0.5
    assert bounds.excess(LARGE) == pytest.approx(excess)
    assert bounds.penalty_of(LARGE) == pytest.approx(10 * excess)
    assert Bounds().penalty_of(LARGE) == 0
