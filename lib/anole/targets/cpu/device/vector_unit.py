"""The vector unit of a CPU, which determines the register tiles, and its matrix extension (AMX)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FLOAT_BYTES = 4
"""Size of a float32, and of an accumulator or packed word of any type."""

_TILE_FEATURES = {"bfloat16x2": {"amx_tile", "amx_bf16"}, "uint8x4": {"amx_tile", "amx_int8"}}
"""The features that tile products require, by the type of packed words."""


@dataclass(frozen=True)
class VectorUnit:
    """The float32 lanes of a vector register, the number of registers, and the packed types that AMX multiplies."""

    lanes: int
    registers: int
    tile_types: frozenset[str] = frozenset()

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> VectorUnit:
        """Return the vector unit of a described CPU; assume four lanes if nothing better is known."""
        features = set(description.get("features", ()))
        tile_types = frozenset(word for word, required in _TILE_FEATURES.items() if required <= features)
        if "avx512f" in features or tile_types:
            return cls(16, 32, tile_types)
        if "avx2" in features or "avx" in features:
            return cls(lanes=8, registers=16)
        if "neon" in features or "asimd" in features:
            return cls(lanes=4, registers=32)
        return cls(lanes=4, registers=16)

    @property
    def multiplies_scalars(self) -> bool:
        """Whether one instruction multiplies a vector by a scalar in memory or a single lane, as in AVX-512 and Neon.

        Otherwise, the scalar is broadcast to a register first.
        """
        return self.registers > 16

    @property
    def widest_panel(self) -> int:
        """Width of a weight panel that leaves three quarters of the registers for accumulators and data."""
        return self.lanes * self.registers // 4

    def round_up(self, extent: int) -> int:
        """Round an extent up to a multiple of the number of lanes."""
        return -(-extent // self.lanes) * self.lanes

    def lanes_of(self, panel: int) -> int:
        """Return the number of lanes with which a weight panel is read: the largest that divides its width."""
        return next(lanes for lanes in range(min(self.lanes, panel), 0, -1) if panel % lanes == 0)

    def lanes_of_each(self, panels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return `lanes_of` for an array of panels, shape (n,)."""
        widths, indices = np.unique(panels, return_inverse=True)
        return np.array([self.lanes_of(int(width)) for width in widths])[indices]
