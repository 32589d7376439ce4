"""A template whose algorithm is chosen by a knob of the config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from tvm import te, tirx

from anole.record import Config
from anole.space import ALGORITHM
from anole.targets.base import Template


@dataclass(frozen=True)
class ChoiceTemplate:
    """The templates of the algorithms in a space that `anole.space.union` made.

    Attributes:
        templates: the templates by the algorithm's name.
    """

    templates: Mapping[str, Template]

    def packed_shape(self, workload: Any, config: Config) -> tuple[int, ...]:
        """Returns the shape of the weight as packed by the chosen template."""
        return self._chosen(config).packed_shape(workload, config)

    def pack_weight(self, workload: Any, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Returns the weight as packed by the chosen template."""
        return self._chosen(config).pack_weight(workload, config, weight)

    def compute(self, workload: Any, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Returns the chosen template's definition."""
        return self._chosen(config).compute(workload, config, data, packed)

    def schedule(self, func: tirx.PrimFunc, workload: Any, config: Config) -> tirx.PrimFunc:
        """Returns the function as scheduled by the chosen template."""
        return self._chosen(config).schedule(func, workload, config)

    def _chosen(self, config: Config) -> Template:
        return self.templates[config[ALGORITHM]]
