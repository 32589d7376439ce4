"""The target of the simulated accelerator; measuring needs no device and runs in parallel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final

from anole.errors import ConfigError
from anole.record import Config
from anole.space.space import Space
from anole.targets.base import DeviceLocation, NetworkEntryPoints, version_of
from anole.targets.kind import is_open
from anole.task import Attention, BatchMatmul, Conv2d, Dense, Workload, without_weight_scheme
from anole_vta.area import BOUNDS, Bounds
from anole_vta.geometry import Geometry
from anole_vta.simulator.timing import cycles_of
from anole_vta.templates.conv2d import lower_conv2d
from anole_vta.templates.design import (
    EPILOGUE,
    Design,
    can_run,
    conv2d_space,
    default_config,
    design_of,
    geometry_of,
    pad_to_blocks,
)


class VtaTarget:
    """An accelerator with a fixed or searched geometry, from a description of `describe_vta`."""

    location: Final = DeviceLocation.SIMULATOR
    networks = NetworkEntryPoints("anole_vta.compile.compiler:compile_for_vta", "anole_vta.evaluate:SimulatedRunner")
    operators: tuple[str, ...] = ("conv2d", "dense")
    template_versions: Mapping[str, int] = {"conv2d": 2, "dense": 2}

    def __init__(self, description: Mapping[str, Any]) -> None:
        self.description = description
        self.geometry = Geometry.from_json(description["geometry"])
        self.frequency_hz = float(description["frequency_mhz"]) * 1e6

    @cached_property
    def bounds(self) -> Bounds | None:
        """Bounds on the accelerator's cost if its geometry is searched."""
        return None if self.description["hardware"] == "fixed" else Bounds.of(self.description)

    def absence(self) -> str | None:
        """Return None: a simulator is always present."""

    def template_version(self, workload: Workload) -> int:
        """Return the template version for a workload's operator; raise TargetError if there is no template."""
        return version_of(workload, self.template_versions, "vta")

    def takes(self, workload: Workload, position: int) -> bool:
        """Whether an operator can run on the accelerator and is not assigned to the host."""
        if position == 0 and isinstance(workload, Conv2d) and self.description["first_layer"] == "host":
            return False
        return can_run(lambda: self.default_config(workload))

    def in_target_precision(self, workload: Workload) -> Workload:
        """Return the workload without a weight scheme, because the accelerator multiplies plain weights."""
        return without_weight_scheme(workload)

    def space(self, workload: Workload) -> Space:
        """Return the search space of a workload."""
        has_open_space = is_open(self.description)
        return conv2d_space(as_conv2d(workload), self.geometry, self.bounds, has_open_space, self.frequency_hz)

    def default_config(self, workload: Workload) -> Config:
        """Return a valid config on the given accelerator; raise ConfigError if none can run the workload."""
        return default_config(as_conv2d(workload), self.geometry)

    def simulate(self, workload: Workload, config: Config) -> float:
        """Return the seconds of one execution; raise ConfigError as `cycles` does."""
        return self.cycles(workload, config) / self.frequency_hz

    def cycles(self, workload: Workload, config: Config) -> int:
        """Return the cycles of one execution with bias, shift and clip; raise ConfigError if the config cannot run."""
        convolution = as_conv2d(workload)
        design = design_of(convolution, self.geometry, config)
        return _cycles(_Run(pad_to_blocks(convolution, design.geometry), design.program, design))

    def with_geometry(self, geometry: Geometry) -> VtaTarget:
        """Return the target with a given geometry."""
        settings = {name: value for name, value in self.description.items() if name not in BOUNDS}
        return VtaTarget({**settings, "hardware": "fixed", "geometry": geometry.to_json()})

    def geometry_of(self, config: Config) -> Geometry:
        """Return the geometry that a config selects."""
        return geometry_of(self.geometry, config)


@dataclass(frozen=True)
class _Run:
    """A convolution and its program, equal for all designs with the same program."""

    workload: Conv2d
    program: tuple[object, ...]
    design: Design = field(compare=False)


@lru_cache(maxsize=1 << 14)
def _cycles(run: _Run) -> int:
    """Return the cycles of a program; many configs of a searched accelerator share one."""
    geometry = run.design.geometry
    program = lower_conv2d(run.workload, run.design.schedule, geometry, EPILOGUE)
    return cycles_of(program.instructions, geometry)


def as_conv2d(workload: Workload) -> Conv2d:
    """Return a workload as a convolution; a dense layer becomes a 1x1 convolution with its rows as height.

    Raises:
        ConfigError: the weight is not constant, or the workload is exact integer arithmetic.
    """
    if isinstance(workload, (Attention, BatchMatmul)):
        raise ConfigError(f"{workload.label}: the accelerator requires a constant weight; this runs on the host")
    if workload.exact:
        raise ConfigError(f"{workload.label}: the accelerator would quantize integers again; this runs on the host")
    if isinstance(workload, Dense):
        return Conv2d(1, workload.batch, 1, workload.in_features, workload.out_features, (1, 1), dtype=workload.dtype)
    return workload
