"""What a target must give: templates that turn (workload, config) into programs, a builder and a runner."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from anole.record import Config
from anole.space.space import Space
from anole.task import Workload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tvm import te, tirx

ANCHOR = "anole.anchor"
"""The block attribute that marks the anchor operator's block; its value is the operator's name."""


class Template(Protocol):
    """Code that turns a workload and a config into a program, in three steps that a whole graph can take apart.

    A graph packs constant weights once, at compile time; it fuses epilogues (bias, residual add, relu) behind
    `compute` before it calls `schedule`.
    """

    version: int

    def space(self, workload: Any) -> Space:
        """Returns the knobs of a workload on this target."""

    def default_config(self, workload: Any) -> Config:
        """Returns a valid config that is decent without any tuning."""

    def pack_weight(self, workload: Any, config: Config, weight: te.Tensor) -> te.Tensor:
        """Returns the weight in the layout that the config reads; HWIO for conv2d, (in, out) for dense."""

    def compute(self, workload: Any, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Returns the anchor operator's definition over data and packed weight; its block carries `ANCHOR`."""

    def schedule(self, func: tirx.PrimFunc, workload: Any, config: Config) -> tirx.PrimFunc:
        """Returns a function that holds the anchor's definition, and maybe an epilogue, scheduled by the config."""


class Timeable(Protocol):
    """A loaded candidate, ready to be checked and timed."""

    def relative_error(self) -> float:
        """Runs it once and returns the relative L2 distance from the reference."""

    def __call__(self, number: int) -> float:
        """Runs it `number` times back to back and returns the mean seconds of one run."""


class Runner(Protocol):
    """Runs candidates of one task in the present process."""

    def load(self, artifact: Path, config: Config) -> Timeable:
        """Loads what the builder wrote."""


class Target(Protocol):
    """The hardware, as one class for each kind."""

    description: Mapping[str, Any]

    def template(self, workload: Workload) -> Template:
        """Returns the template of a workload's operator."""

    def build(self, workload: Workload, config: Config, artifact: Path) -> None:
        """Builds one candidate with the canonical epilogue (bias, relu) into a file."""

    def runner(self, workload: Workload) -> Runner:
        """Returns what runs candidates of a workload here; its process should do nothing else."""

    def reference(self, workload: Workload, arrays: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
        """Returns the right result of a workload with the canonical epilogue."""
