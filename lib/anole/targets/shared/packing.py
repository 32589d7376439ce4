"""How templates lay out the second operand: in panels that a tile reads, or, if it is computed too, as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.record import Config
from anole.targets.shared.reference import weight_shape
from anole.task import BatchMatmul


def in_panels(weight: NDArray[Any], width: int, columns: int | None = None) -> NDArray[Any]:
    """Returns a copy of (..., out) weights as (panels, ..., width), with zeros up to a number of columns."""
    missing = 0 if columns is None else columns - weight.shape[-1]
    padded = np.pad(weight, [(0, 0)] * (weight.ndim - 1) + [(0, missing)])
    return np.ascontiguousarray(np.moveaxis(padded.reshape(*weight.shape[:-1], -1, width), -2, 0))


class UnpackedTemplate:
    """Implements packing as a no-op, because no operand is constant."""

    def packed_shape(self, workload: BatchMatmul, config: Config) -> tuple[int, ...]:
        """Returns the shape of the right operand."""
        return weight_shape(workload)

    def pack_weight(self, workload: BatchMatmul, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Returns the right operand as it is."""
        return weight
