"""A candidate as OpenCL kernels, with everything that is needed to launch them; needs no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

Extents = tuple[int, int, int]
"""A number along each of x, y and z."""

ITEM_BYTES = 4
"""Bytes of one value: all buffers hold float32."""


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel.

    Attributes:
        kernel: name of the kernel in the source.
        arguments: names of the buffers that it is given, in its own order.
        grid: number of blocks (work-groups).
        block: threads (work-items) of a block.
    """

    kernel: str
    arguments: tuple[str, ...]
    grid: Extents
    block: Extents

    @property
    def threads(self) -> Extents:
        """Threads of the whole grid, which OpenCL calls its global size."""
        x, y, z = (blocks * threads for blocks, threads in zip(self.grid, self.block, strict=True))
        return x, y, z


@dataclass(frozen=True)
class Launches:
    """The kernels of one candidate, in the order in which its host part launches them.

    Attributes:
        source: the OpenCL C of all kernels.
        parameters: number of values of every parameter, by name, in the candidate's order; the last is the output.
        workspaces: number of values of every buffer that the host part allocates between the kernels, by name.
        launches: one or more launches.
    """

    source: str
    parameters: Mapping[str, int]
    workspaces: Mapping[str, int]
    launches: tuple[Launch, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the parameters that are only read."""
        return tuple(self.parameters)[:-1]

    @property
    def output(self) -> str:
        """Name of the parameter that is written."""
        return tuple(self.parameters)[-1]

    @property
    def sizes(self) -> Mapping[str, int]:
        """Number of values of every buffer."""
        return {**self.parameters, **self.workspaces}

    def with_source(self, source: str) -> Self:
        """Returns the same launches of other kernels, such as mutants."""
        return replace(self, source=source)
