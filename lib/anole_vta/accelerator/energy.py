"""The energy for one input: access counts of a network's programs times the energies of CACTI and Aladdin.

``benchmarks/vta/energies.py`` writes ``energies.csv``; its docstring names the models. Wires, clocks and control are
not modeled. Totals are therefore lower than on a chip, and meant for comparisons only.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from anole_vta.accelerator.accesses import COUNTED
from anole_vta.geometry import INSTRUCTION_BYTES, Geometry, Memory

TYPICAL_NM = 45
"""The process for relative energies, the nearest to the processes of the other models."""

_MAX_WIDTH_BITS, _MIN_WIDTH_BITS = 512, 32
"""The largest and the smallest width in the file; wider elements are split across several memories."""

_MAX_DEPTH = 1 << 17
"""The largest depth in the file; deeper memories consist of banks, and an access uses one bank."""

_N_MODULES = 3
"""The number of modules, each with an instruction queue."""


class _Part(NamedTuple):
    """The energies, leakage and area of a part."""

    read_pj: float
    write_pj: float
    leakage_uw: float
    area_um2: float


@dataclass(frozen=True, eq=False)
class UnitEnergies:
    """The energy per access and the leakage of an accelerator.

    Attributes:
        per_event_j: joules per event of `COUNTED`, shape (n_counted,).
        leakage_w: leakage in watts.
    """

    per_event_j: NDArray[np.float64]
    leakage_w: float

    def of(self, accesses: NDArray[np.int64], latency_s: float) -> float:
        """Return the joules, including leakage, for given access counts, shape (n_counted,), and duration."""
        return float(self.per_event_j @ accesses) + self.leakage_w * latency_s


@cache
def unit_energies(geometry: Geometry, technology_nm: int = TYPICAL_NM) -> UnitEnergies:
    """Return the energies of an accelerator in a process technology."""
    parts = _parts(technology_nm)
    memories = {
        memory.name.lower(): sram(8 * geometry.element_bytes(memory), geometry.depth(memory), technology_nm)
        for memory in Memory
    }
    queue = sram(8 * INSTRUCTION_BYTES, geometry.queue_entries, technology_nm)
    multiplier, adder, dram = (parts[name] for name in (("multiplier", 8, 1), ("adder", 32, 1), ("dram", 64, 1)))
    event_pj = {
        **{f"{name}_reads": part.read_pj for name, part in memories.items()},
        **{f"{name}_writes": part.write_pj for name, part in memories.items()},
        "products": multiplier.read_pj,
        "sums": adder.read_pj,
        "dram_bits": dram.read_pj / 64,
        "instructions": queue.write_pj + queue.read_pj,
    }
    lanes = geometry.batch * geometry.block_out
    leakage_uw = sum(part.leakage_uw for part in memories.values()) + _N_MODULES * queue.leakage_uw
    leakage_uw += lanes * geometry.block_in * (multiplier.leakage_uw + adder.leakage_uw) + lanes * adder.leakage_uw
    return UnitEnergies(1e-12 * np.array([event_pj[event] for event in COUNTED]), 1e-6 * leakage_uw)


def sram(width_bits: int, depth: int, technology_nm: int = TYPICAL_NM) -> _Part:
    """Return a memory with `depth` elements, split across several memories if it is wider than any in the file."""
    part_bits = min(max(width_bits, _MIN_WIDTH_BITS), _MAX_WIDTH_BITS)
    part = _parts(technology_nm)["sram", part_bits, min(max(2, depth), _MAX_DEPTH)]
    n_side_by_side, banks = -(-width_bits // part_bits), -(-depth // _MAX_DEPTH)
    read_pj, write_pj, leakage_uw, area_um2 = (n_side_by_side * figure for figure in part)
    return _Part(read_pj, write_pj, banks * leakage_uw, banks * area_um2)


@cache
def _parts(technology_nm: int) -> Mapping[tuple[str, int, int], _Part]:
    """Return the parts of a process, by name, width in bits and depth."""
    with Path(__file__).with_name("energies.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if int(row["technology_nm"]) == technology_nm]
    return {
        (row["part"], int(row["width_bits"]), int(row["depth"])): _Part(*(float(row[name]) for name in _Part._fields))
        for row in rows
    }
