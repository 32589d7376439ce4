"""Energies and areas of an accelerator's parts, from CACTI and Aladdin."""

from dataclasses import replace

import numpy as np
import pytest

from anole_vta.accelerator.accesses import COUNTED
from anole_vta.accelerator.energy import sram, unit_energies
from anole_vta.geometry import DEFAULT, Geometry, Memory
from anole_vta.settings import TECHNOLOGIES_NM

NAND2_UM2 = 0.798
"""The area of a two-input NAND in the open cell library NanGate45."""


def cost(geometry, what, technology_nm=45):
    return unit_energies(geometry, technology_nm).per_event_j[COUNTED.index(what)]


@pytest.mark.parametrize("technology_nm", TECHNOLOGIES_NM)
def test_every_searched_memory_has_energies(technology_nm):
    for log in range(13, 20):
        for block in (8, 16, 32, 64):
            size, widths = 8 << log, (64 * block, 8 * block, 32 * block, 8 * block * block)
            for width in (each for each in widths if 2 * each <= size):
                part = sram(width, size // width, technology_nm)
                assert min(part) > 0


def test_larger_and_wider_memories_cost_more():
    large = replace(DEFAULT, wgt_bytes=2 * DEFAULT.wgt_bytes, inp_bytes=DEFAULT.inp_bytes // 2)
    assert cost(large, "wgt_reads") > cost(DEFAULT, "wgt_reads")
    assert cost(large, "inp_reads") < cost(DEFAULT, "inp_reads")
    assert sram(1024, 64).read_pj == 2 * sram(512, 64).read_pj
    assert unit_energies(Geometry(block_in=32, block_out=32)).leakage_w > unit_energies(DEFAULT).leakage_w


def test_memories_deeper_than_the_file_has_are_banks():
    deepest, deeper = sram(64, 1 << 17), sram(64, 1 << 19)
    assert deeper.read_pj == deepest.read_pj and deeper.area_um2 == pytest.approx(4 * deepest.area_um2)


def test_dram_costs_most_and_older_processes_cost_more():
    """Costs rise as in Horowitz (2014): operations, on-chip memories, DRAM."""
    bits = 8 * DEFAULT.element_bytes(Memory.WGT)
    per_bit = cost(DEFAULT, "wgt_reads") / bits
    assert cost(DEFAULT, "products") / 16 < cost(DEFAULT, "dram_bits") and per_bit < cost(DEFAULT, "dram_bits") / 10
    energies = [cost(DEFAULT, "products", nm) for nm in TECHNOLOGIES_NM]
    assert energies == sorted(energies) and energies[0] < energies[-1]


def test_energy_includes_all_accesses_and_leakage_over_time():
    energies = unit_energies(DEFAULT)
    accesses = np.zeros(len(COUNTED), dtype=np.int64)
    accesses[COUNTED.index("products")] = 10
    assert energies.of(accesses, 0.0) == pytest.approx(10 * cost(DEFAULT, "products"))
    assert energies.of(accesses, 2.0) - energies.of(accesses, 0.0) == pytest.approx(2 * energies.leakage_w)


def test_memory_area_is_close_to_cacti():
    """As docs/vta/accelerators.md says, half a gate per bit is too little for wide, shallow memories."""

    def ratio(block):
        g = Geometry(block_in=block, block_out=block)
        um2 = sum(sram(8 * g.element_bytes(memory), g.depth(memory)).area_um2 for memory in Memory)
        bits = sum(8 * g.element_bytes(memory) * g.depth(memory) for memory in Memory)
        return 0.5 * bits * NAND2_UM2 / um2

    assert [ratio(block) for block in (16, 32, 64)] == pytest.approx([0.99, 0.83, 0.48], abs=0.005)
