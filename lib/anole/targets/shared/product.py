"""What the templates of products of two computed tensors share: operands that nothing can pack ahead."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from anole.record import Config
from anole.targets.shared.reference import weight_shape
from anole.task import BatchMatmul


class ProductTemplate:
    """The part of a template that a constant weight would give more to do."""

    def packed_shape(self, workload: BatchMatmul, config: Config) -> tuple[int, ...]:
        """Returns the shape of the right operand."""
        return weight_shape(workload)

    def pack_weight(self, workload: BatchMatmul, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Returns the right operand as it is."""
        return weight
