"""The constant weight that kernels read, packed once for each layout and copied, so that it comes from memory."""

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
"""So much is kept of all layouts together."""


class WeightCopies:
    """Copies of one weight in the layouts that configs read.

    All kernels that read a layout take their turns on the same copies: none meets one that another has just read.

    Args:
        template: of the workload.
        workload: whose weight it is.
        weight: unpacked, see `Template.pack_weight`.
        cold_bytes: how much is read before the same copy is met again, but no more than 64 others; 0 for a single one.
    """

    def __init__(self, template: Template, workload: Workload, weight: NDArray[Any], cold_bytes: int) -> None:
        self._template, self._workload, self._weight = template, workload, weight
        self._cold_bytes = cold_bytes
        self._copies: dict[tuple[int, ...], Iterator[Any]] = {}

    def of(self, config: Config) -> Iterator[Any]:
        """Returns the copies in a config's layout, without end: next is always what was not read for longest."""
        shape = self._template.packed_shape(self._workload, config)
        if shape not in self._copies:
            packed = self._template.pack_weight(self._workload, config, self._weight)
            n_copies = 1 + min(-(-self._cold_bytes // packed.nbytes), _MOST_COPIES)
            most_layouts = max(1, _KEPT_BYTES // (n_copies * packed.nbytes))
            while len(self._copies) >= most_layouts:
                del self._copies[next(iter(self._copies))]
            self._copies[shape] = cycle([tvm.runtime.tensor(packed) for _ in range(n_copies)])
        return self._copies[shape]
