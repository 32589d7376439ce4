"""An abacus as a target: the CPU, with a rod for each thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anole.record import Config
from anole.space import Space
from anole.targets.base import version_of
from anole.targets.cpu.target import CpuTarget
from anole.task import Conv2d, Workload


class AbacusTarget(CpuTarget):
    """This machine's CPU with convolutions that are never unrolled.

    Args:
        description: its ``rods``, and the description of the CPU.
    """

    operators = ("conv2d",)
    template_versions: Mapping[str, int] = {"conv2d": 1}

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.exact = True

    def template_version(self, workload: Workload) -> int:
        """Return the version of a workload's template."""
        return version_of(workload, self.template_versions, "the abacus")

    def takes(self, workload: Workload, position: int) -> bool:
        """Whether the workload is a convolution."""
        return isinstance(workload, Conv2d)

    def space(self, workload: Workload) -> Space:
        """Return the CPU's space without unrolling."""
        plain = super().space(workload)
        return plain.restrict({"auto_unroll_max_step": [0], "unroll_explicit": [0]})

    def default_config(self, workload: Workload) -> Config:
        """Return the config with the highest merit in a sample."""
        return self.space(workload).best_sampled
