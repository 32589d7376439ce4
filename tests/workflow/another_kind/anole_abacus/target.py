"""An abacus as a target: it computes as the processor does, with a rod for each thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anole.record import Config
from anole.space import Space
from anole.targets.base import version_of
from anole.targets.cpu.target import CpuTarget
from anole.task import Conv2d, Workload


class AbacusTarget(CpuTarget):
    """This machine's processor, whose convolutions are never unrolled.

    Args:
        description: its ``rods``, beside all that the processor's says.
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
        """Whether it is a convolution."""
        return isinstance(workload, Conv2d)

    def space(self, workload: Workload) -> Space:
        """Return the processor's knobs, without those that unroll."""
        plain = super().space(workload)
        return plain.restricted({"auto_unroll_max_step": [0], "unroll_explicit": [0]})

    def default_config(self, workload: Workload) -> Config:
        """Return the config of most merit."""
        return self.space(workload).best_sampled
