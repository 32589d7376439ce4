"""Compute the energies and areas of the parts of accelerators with CACTI and the Aladdin models, as CSV.

    python benchmarks/vta/energies.py > lib/anole_vta/accelerator/energies.csv

Needs Python 3.12 or later and `pip install hwcomponents==1.0.114 hwcomponents-cacti==1.0.40
hwcomponents-library==1.0.58 hwcomponents-neurosim`; Anole needs only the output. Energies are in picojoules per
access or operation, leakage in microwatts, areas in square micrometers. A memory has one port for reading and writing;
CACTI models depths from 64 on, and the library scales shallower memories down.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator

from hwcomponents_cacti import LPDDR4, SRAM
from hwcomponents_library.library.aladdin import AladdinAdder, AladdinMultiplier

TECHNOLOGIES_NM = (22, 32, 45, 65)
WIDTHS_BITS = (32, 64, 128, 256, 512)
DEPTHS = tuple(1 << log for log in range(1, 18))
COLUMNS = ("technology_nm", "part", "width_bits", "depth", "read_pj", "write_pj", "leakage_uw", "area_um2")


def main() -> None:
    """Print a row for each part."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for technology_nm in TECHNOLOGIES_NM:
        for row in rows(technology_nm):
            writer.writerow([technology_nm, *(f"{cell:.4g}" if isinstance(cell, float) else cell for cell in row)])


def rows(technology_nm: int) -> Iterator[tuple[object, ...]]:
    """Yield a row for each part in a process technology; operations only have a read energy, and DRAM has no area."""
    node = technology_nm * 1e-9
    multiplier, adder, dram = AladdinMultiplier(node, width=8), AladdinAdder(node, width=32), LPDDR4(width=64)
    for name, part, cost in (("multiplier", multiplier, multiplier.read()), ("adder", adder, adder.read())):
        yield name, 8 if name == "multiplier" else 32, 1, 1e12 * cost.energy, 0.0, *_leakage_and_area(part)
    yield "dram", 64, 1, 1e12 * dram.read().energy, 1e12 * dram.write().energy, 0.0, 0.0
    for width_bits in WIDTHS_BITS:
        for depth in DEPTHS:
            sram = SRAM(node, width=width_bits, depth=depth, size=width_bits * depth)
            energies_pj = (1e12 * sram.read().energy, 1e12 * sram.write().energy)
            yield "sram", width_bits, depth, *energies_pj, *_leakage_and_area(sram)


def _leakage_and_area(part: AladdinAdder | AladdinMultiplier | SRAM) -> tuple[float, float]:
    """Return the leakage of a part in microwatts, and its area in square micrometers."""
    return 1e6 * part.leak_power, 1e12 * part.area


if __name__ == "__main__":
    main()
