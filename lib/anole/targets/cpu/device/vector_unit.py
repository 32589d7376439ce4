"""The vector unit of a processor, which decides the register tiles, and what it has beside it for matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FLOAT_BYTES = 4
"""Size of float32, the only type that is computed."""

_TILE_FEATURES = {"bfloat16x2": {"amx_tile", "amx_bf16"}, "uint8x4": {"amx_tile", "amx_int8"}}
"""The features of products of tiles, by the type of the words."""


@dataclass(frozen=True)
class VectorUnit:
    """The float32 values in a vector register, the number of these registers, and which words AMX multiplies."""

    lanes: int
    registers: int
    tile_words: frozenset[str] = frozenset()

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> VectorUnit:
        """Return the vector unit of a described processor; four lanes if nothing better is known."""
        features = set(description.get("features", ()))
        tile_words = frozenset(words for words, needed in _TILE_FEATURES.items() if needed <= features)
        if "avx512f" in features or tile_words:
            return cls(16, 32, tile_words)
        if "avx2" in features or "avx" in features:
            return cls(lanes=8, registers=16)
        if "neon" in features or "asimd" in features:
            return cls(lanes=4, registers=32)
        return cls(lanes=4, registers=16)

    @property
    def multiplies_scalars(self) -> bool:
        """Whether an instruction multiplies a vector with one number in memory or in a lane, as AVX-512's and Neon's.

        Otherwise a number is broadcast to a register first.
        """
        return self.registers > 16

    @property
    def widest_panel(self) -> int:
        """Floats of one row of weights that leave three quarters of the registers for accumulators and data."""
        return self.lanes * self.registers // 4

    def padded(self, extent: int) -> int:
        """Return an extent rounded up to whole registers."""
        return -(-extent // self.lanes) * self.lanes

    def lanes_of(self, panel: int) -> int:
        """Return the number of lanes with which a weight panel of this width is read: the most that divide it."""
        return next(lanes for lanes in range(min(self.lanes, panel), 0, -1) if panel % lanes == 0)

    def lanes_of_each(self, panels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return `lanes_of` of n panels, shape (n,)."""
        widths, which = np.unique(panels, return_inverse=True)
        return np.array([self.lanes_of(int(width)) for width in widths])[which]
