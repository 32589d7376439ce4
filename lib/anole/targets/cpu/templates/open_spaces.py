"""The open spaces of the CPU: which tasks have one, and the template that lowers its configs; needs no compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from anole.space import Space
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates import (
    batch_matmul_open,
    batch_matmul_space,
    conv2d_open,
    conv2d_space,
    dense_open,
    dense_space,
)
from anole.task import Conv2d, Workload

SpaceOf = Callable[[VectorUnit, int, Any], Space]
"""Maps a vector unit, the number of threads and a workload to its space."""


@dataclass(frozen=True)
class Opened:
    """An open space, and the constrained one whose configs it also holds.

    Attributes:
        version: the version of the open space alone.
        space: the open space.
        constrained: the constrained space; its config of most merit is the default.
        template: the class of the template, as ``module:object``.
    """

    version: int
    space: SpaceOf
    constrained: SpaceOf
    template: str


_TEMPLATES = "anole.targets.cpu.templates"
_OPENED: Mapping[str, Opened] = {
    "batch_matmul": Opened(
        batch_matmul_open.VERSION,
        cache(batch_matmul_open.batch_matmul_open),
        batch_matmul_space.batch_matmul_space,
        f"{_TEMPLATES}.batch_matmul:BatchMatmulTemplate",
    ),
    "conv2d": Opened(
        conv2d_open.VERSION,
        cache(conv2d_open.conv2d_open),
        conv2d_space.conv2d_space,
        f"{_TEMPLATES}.conv2d:Conv2dTemplate",
    ),
    "dense": Opened(
        dense_open.VERSION,
        cache(dense_open.dense_open),
        dense_space.dense_space,
        f"{_TEMPLATES}.dense:DenseTemplate",
    ),
}
"""The open space of each operator that has one."""

VERSIONS = {f"{operator}.open": each.version for operator, each in _OPENED.items()}


def opened(w: Workload) -> Opened | None:
    """Returns the open space of a workload, or None if it has none, as convolutions of several groups."""
    return None if isinstance(w, Conv2d) and w.groups > 1 else _OPENED.get(w.operator)
