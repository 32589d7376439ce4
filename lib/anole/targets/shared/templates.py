"""Building blocks of templates: layouts of the second operand, and the choice among several templates by a config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx

from anole.record import Config
from anole.space import ALGORITHM
from anole.targets.base import Template
from anole.targets.shared.reference import weight_shape
from anole.task import Attention, BatchMatmul


def pack_panels(weight: NDArray[Any], width: int, columns: int | None = None) -> NDArray[Any]:
    """Copy (..., out) weights to (panels, ..., width), padded with zeros to a number of columns."""
    padding = 0 if columns is None else columns - weight.shape[-1]
    padded = np.pad(weight, [(0, 0)] * (weight.ndim - 1) + [(0, padding)])
    return np.ascontiguousarray(np.moveaxis(padded.reshape(*weight.shape[:-1], -1, width), -2, 0))


class UnpackedTemplate:
    """A base of templates that pack nothing, because no operand is constant."""

    def packed_shape(self, workload: BatchMatmul | Attention, config: Config) -> tuple[int, ...]:
        """Return the shape of the right operand."""
        return weight_shape(workload)

    def pack_weight(self, workload: BatchMatmul | Attention, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Return the right operand unchanged."""
        return weight


@dataclass(frozen=True)
class ChoiceTemplate:
    """A template that delegates to the template of the config's algorithm, for spaces made by `anole.space.union`."""

    templates: Mapping[str, Template]

    def packed_shape(self, workload: Any, config: Config) -> tuple[int, ...]:
        """Return the shape of the weight as packed by the chosen template."""
        return self._template_for(config).packed_shape(workload, config)

    def pack_weight(self, workload: Any, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Return the weight as packed by the chosen template."""
        return self._template_for(config).pack_weight(workload, config, weight)

    def compute(self, workload: Any, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Return the chosen template's definition."""
        return self._template_for(config).compute(workload, config, data, packed)

    def schedule(self, func: tirx.PrimFunc, workload: Any, config: Config) -> tirx.PrimFunc:
        """Return the function as scheduled by the chosen template."""
        return self._template_for(config).schedule(func, workload, config)

    def _template_for(self, config: Config) -> Template:
        return self.templates[config[ALGORITHM]]
