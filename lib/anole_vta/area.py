"""The cost of an accelerator in area and memory, and the penalty for exceeding given bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

from anole.task import Conv2d
from anole_vta.geometry import DEFAULT, Geometry

_GATES_PER_MULTIPLIER = 1.14e3
_GATES_PER_ALU_LANE = 2.3e3
_GATES_ELSE = 50e3
_GATES_PER_BUS_BIT = 40.0
_GATES_PER_MEMORY_BIT = 0.5


def area_gates(geometry: Geometry) -> float:
    """Return the area in gate equivalents (two-input NANDs).

    The logic is fitted to gate mappings of the generated hardware with blocks of 1x16x16 and 1x32x32; the gates for a
    bit of memory and for a wire of the bus are assumptions.
    """
    lanes = geometry.batch * geometry.block_out
    logic = _GATES_PER_MULTIPLIER * lanes * geometry.block_in + _GATES_PER_ALU_LANE * lanes + _GATES_ELSE
    bus = _GATES_PER_BUS_BIT * (8 * geometry.bus_bytes - 64)
    return logic + bus + _GATES_PER_MEMORY_BIT * geometry.sram_bits


def relative_area(geometry: Geometry) -> float:
    """Return the area in units of VTA's."""
    return area_gates(geometry) / area_gates(DEFAULT)


def relative_memory(geometry: Geometry) -> float:
    """Return the on-chip memory in units of VTA's."""
    return geometry.sram_bits / DEFAULT.sram_bits


@dataclass(frozen=True)
class Bounds:
    """Bounds on area and memory in units of VTA's: the settings of a search for hardware.

    Attributes:
        penalty: DCOC's lambda: the cost of one unit beyond the bounds.
        penalty_form: what the cost is counted in. With ``difference``, as in the paper's equation 5, the cost is
            subtracted from the speed, both in units of VTA's own (`unit_speed`). With ``share``, it is the part of
            its own speed that a config loses.
    """

    area_max: float = 2.0
    memory_max: float = 1.0
    penalty: float = 1.0
    penalty_form: Literal["difference", "share"] = "difference"

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> Self:
        """Return the bounds that a target's description has."""
        return cls(**{name: description[name] for name in BOUNDS if name in description})

    def excess(self, geometry: Geometry) -> float:
        """Return by how much a geometry exceeds the bounds; 0 if it does not."""
        area = max(0.0, relative_area(geometry) - self.area_max)
        return area + max(0.0, relative_memory(geometry) - self.memory_max)

    def penalty_of(self, geometry: Geometry) -> float:
        r"""Return DCOC's $P(\theta) = \lambda (\max(0, area - area_{max}) + \max(0, memory - memory_{max}))$."""
        return self.penalty * self.excess(geometry)


BOUNDS = tuple(field.name for field in fields(Bounds))
"""The settings that only a search for hardware has."""


def unit_speed(w: Conv2d, frequency_hz: float) -> float:
    """Return the runs of a convolution per second if VTA's own matrix unit did nothing else.

    Area and memory are in units of VTA's own, and so is a speed from which their penalty is subtracted.
    """
    multiply_adds = w.flop / 2
    return frequency_hz * DEFAULT.batch * DEFAULT.block_in * DEFAULT.block_out / multiply_adds
