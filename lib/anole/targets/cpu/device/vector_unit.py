"""The vector unit of a processor, which decides the register tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FLOAT_BYTES = 4
"""Size of float32, the only type that is computed."""


@dataclass(frozen=True)
class VectorUnit:
    """Width and number of the vector registers.

    Attributes:
        lanes: float32 values in one register.
        registers: architectural vector registers.
    """

    lanes: int
    registers: int

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> VectorUnit:
        """Returns the vector unit of a described processor; four lanes if nothing better is known."""
        features = set(description.get("features", ()))
        if "avx512f" in features:
            return cls(lanes=16, registers=32)
        if "avx2" in features or "avx" in features:
            return cls(lanes=8, registers=16)
        if "neon" in features or "asimd" in features:
            return cls(lanes=4, registers=32)
        return cls(lanes=4, registers=16)

    @property
    def widest_panel(self) -> int:
        """Floats of one row of weights that leave three quarters of the registers for accumulators and data."""
        return self.lanes * self.registers // 4

    def padded(self, extent: int) -> int:
        """Returns an extent rounded up to whole registers."""
        return -(-extent // self.lanes) * self.lanes
