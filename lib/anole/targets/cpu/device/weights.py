"""Copies of the constant weight, packed once for each layout, so that kernels read it from memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import tvm
from numpy.typing import NDArray

from anole.record import Config
from anole.targets.base import Template
from anole.task import Workload

_MOST_COPIES = 64

_KEPT_BYTES = 256 << 20
"""Limit of the memory for the copies of all layouts together."""


class WeightCopies:
    """Copies of one weight in the layouts that configs read.

    All kernels that read a layout take turns on the same copies, so that none reads a copy that another has just read.

    Args:
        template: the workload's template.
        workload: the workload that has the weight.
        weight: the unpacked weight, see `Template.pack_weight`.
        cold_bytes: bytes read before the same copy is used again, limited to 64 other copies; 0 for a single copy.
    """

    def __init__(self, template: Template, workload: Workload, weight: NDArray[Any], cold_bytes: int) -> None:
        self._template, self._workload, self._weight = template, workload, weight
        self._cold_bytes = cold_bytes
        self._copies: dict[tuple[int, ...], Iterator[Any]] = {}

    def of(self, config: Config) -> Iterator[Any]:
        """Returns an endless iterator over the copies in a config's layout; the least recently read copy is next."""
        shape = self._template.packed_shape(self._workload, config)
        if shape not in self._copies:
            packed = self._template.pack_weight(self._workload, config, self._weight)
            n_copies = 1 + min(-(-self._cold_bytes // packed.nbytes), _MOST_COPIES)
            most_layouts = max(1, _KEPT_BYTES // (n_copies * packed.nbytes))
            while len(self._copies) >= most_layouts:
                del self._copies[next(iter(self._copies))]
            self._copies[shape] = cycle([tvm.runtime.tensor(packed) for _ in range(n_copies)])
        return self._copies[shape]
