"""The area and memory of an accelerator, and the penalty for exceeding bounds on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

from anole.task import Conv2d
from anole_vta.geometry import DEFAULT, Geometry

_GATES_PER_MULTIPLIER = 1.14e3
_GATES_PER_ALU_LANE = 2.3e3
_OTHER_GATES = 50e3
_GATES_PER_BUS_BIT = 40.0
_GATES_PER_MEMORY_BIT = 0.5


def area_gates(geometry: Geometry) -> float:
    """Return the area in gate equivalents (two-input NANDs).

    The logic is fitted to synthesized hardware with blocks of 1x16x16 and 1x32x32; the gates per bit of memory and per
    wire of the bus are assumptions.
    """
    lanes = geometry.batch * geometry.block_out
    logic = _GATES_PER_MULTIPLIER * lanes * geometry.block_in + _GATES_PER_ALU_LANE * lanes + _OTHER_GATES
    bus = _GATES_PER_BUS_BIT * (8 * geometry.bus_bytes - 64)
    return logic + bus + _GATES_PER_MEMORY_BIT * geometry.sram_bits


def relative_area(geometry: Geometry) -> float:
    """Return the area relative to VTA."""
    return area_gates(geometry) / area_gates(DEFAULT)


def relative_memory(geometry: Geometry) -> float:
    """Return the on-chip memory relative to VTA."""
    return geometry.sram_bits / DEFAULT.sram_bits


@dataclass(frozen=True)
class Bounds:
    """Bounds on area and memory relative to VTA: the settings of a hardware search.

    Attributes:
        penalty: DCOC's lambda, the cost of one unit beyond the bounds.
        penalty_form: with ``difference``, as in the paper's equation 5, the cost is subtracted from the speed, which is
            relative to VTA (`unit_speed`). With ``share``, a config loses this share of its speed.
    """

    area_max: float = 2.0
    memory_max: float = 1.0
    penalty: float = 1.0
    penalty_form: Literal["difference", "share"] = "difference"

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> Self:
        """Return the bounds in a target's description."""
        return cls(**{name: description[name] for name in BOUNDS if name in description})

    def excess(self, geometry: Geometry) -> float:
        """Return the amount by which a geometry exceeds the bounds, or 0."""
        area = max(0.0, relative_area(geometry) - self.area_max)
        return area + max(0.0, relative_memory(geometry) - self.memory_max)

    def penalty_of(self, geometry: Geometry) -> float:
        r"""Return DCOC's $P(\theta) = \lambda (\max(0, area - area_{max}) + \max(0, memory - memory_{max}))$."""
        return self.penalty * self.excess(geometry)


BOUNDS = tuple(field.name for field in fields(Bounds))
"""The names of the settings that are allowed only in a hardware search."""


def unit_speed(w: Conv2d, frequency_hz: float) -> float:
    """Return VTA's peak speed for a convolution, in executions per second.

    Speeds from which a penalty is subtracted are relative to this speed, as area and memory are relative to VTA.
    """
    multiply_adds = w.flop / 2
    return frequency_hz * DEFAULT.batch * DEFAULT.block_in * DEFAULT.block_out / multiply_adds
