"""The common part of templates for products of two computed tensors, whose operands cannot be packed ahead."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from anole.record import Config
from anole.targets.shared.reference import weight_shape
from anole.task import BatchMatmul


class ProductTemplate:
    """Implements packing as a no-op, because no operand is constant."""

    def packed_shape(self, workload: BatchMatmul, config: Config) -> tuple[int, ...]:
        """Returns the shape of the right operand."""
        return weight_shape(workload)

    def pack_weight(self, workload: BatchMatmul, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Returns the right operand as it is."""
        return weight
