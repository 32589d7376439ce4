"""The vector unit of a processor, which decides the register tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FLOAT_BYTES = 4
"""Size of float32, the only type that is computed."""


@dataclass(frozen=True)
class VectorUnit:
    """The float32 values in a vector register, and the number of these registers."""

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

    def lanes_of(self, panel: int) -> int:
        """Returns the number of lanes with which a weight panel of this width is read: the most that divide it."""
        return next(lanes for lanes in range(min(self.lanes, panel), 0, -1) if panel % lanes == 0)

    def lanes_of_each(self, panels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns `lanes_of` of n panels, shape (n,)."""
        widths, which = np.unique(panels, return_inverse=True)
        return np.array([self.lanes_of(int(width)) for width in widths])[which]
