"""What an accelerator costs in area and memory, and the penalty for exceeding what may be spent."""

from __future__ import annotations

from dataclasses import dataclass

from anole.targets.vta.geometry import DEFAULT, Geometry

_GATES_PER_MULTIPLIER = 1.14e3
_GATES_PER_ALU_LANE = 2.3e3
_GATES_ELSE = 50e3
_GATES_PER_BUS_BIT = 40.0
_GATES_PER_MEMORY_BIT = 0.5


def area_gates(geometry: Geometry) -> float:
    """Returns the area in gate equivalents (two-input NANDs).

    The logic is fitted to gate mappings of the generated hardware with blocks of 1x16x16 and 1x32x32; what a bit of
    memory and a wire of the bus take is an assumption.
    """
    lanes = geometry.batch * geometry.block_out
    logic = _GATES_PER_MULTIPLIER * lanes * geometry.block_in + _GATES_PER_ALU_LANE * lanes + _GATES_ELSE
    bus = _GATES_PER_BUS_BIT * (8 * geometry.bus_bytes - 64)
    return logic + bus + _GATES_PER_MEMORY_BIT * geometry.sram_bits


def relative_area(geometry: Geometry) -> float:
    """Returns the area in units of VTA's own."""
    return area_gates(geometry) / area_gates(DEFAULT)


def relative_memory(geometry: Geometry) -> float:
    """Returns the on-chip memory in units of VTA's own."""
    return geometry.sram_bits / DEFAULT.sram_bits


@dataclass(frozen=True)
class Bounds:
    """What may be spent, in units of VTA's own.

    Attributes:
        area_max, memory_max: the bounds.
        penalty: DCOC's lambda: what a unit beyond them costs.
    """

    area_max: float = 2.0
    memory_max: float = 1.0
    penalty: float = 1.0

    def excess(self, geometry: Geometry) -> float:
        """Returns by how much a geometry exceeds the bounds; 0 when it does not."""
        area = max(0.0, relative_area(geometry) - self.area_max)
        return area + max(0.0, relative_memory(geometry) - self.memory_max)

    def penalty_of(self, geometry: Geometry) -> float:
        r"""Returns DCOC's $P(\theta) = \lambda (\max(0, area - area_{max}) + \max(0, memory - memory_{max}))$."""
        return self.penalty * self.excess(geometry)
