"""The interfaces of a target: spaces, templates, builder, runner, and optional capabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from anole.errors import TargetError
from anole.record import Config
from anole.task import Workload

if TYPE_CHECKING:
    import tvm
    from numpy.typing import NDArray
    from tvm import te, tirx

    from anole.space.space import Space

ANCHOR = "anole.anchor"
"""The block attribute that marks the anchor operator's block; its value is the operator's name."""

DIRECT, WINOGRAD, TILES = "direct", "winograd", "tiles"
"""The names of algorithms, as configs and features spell them on every target."""

MAX_RELATIVE_ERROR = 1e-4
"""The default for a kernel's maximum error, as its relative L2 distance from the reference."""


class Template(Protocol):
    """Code that turns a workload and a config into a program, in steps that the compiler of a network calls one by one.

    The compiler packs constant weights once, and fuses epilogues (bias, residual add, ReLU) after `compute` before it
    calls `schedule`. If the second operand is an activation, nothing can be packed ahead of time: the packed weight is
    that operand, unchanged.
    """

    def packed_shape(self, workload: Any, config: Config) -> tuple[int, ...]:
        """Return the shape of the packed weight; configs with equal shapes pack the weight in the same way."""

    def pack_weight(self, workload: Any, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Pack a weight, HWIO for conv2d and (in, out) for dense, into the layout that the config reads."""

    def compute(self, workload: Any, config: Config, data: te.Tensor, packed: te.Tensor, *more: te.Tensor) -> te.Tensor:
        """Return the anchor operator's definition over data, packed weight and, for attention, values and addends.

        The block that does most of the work carries `ANCHOR`.
        """

    def schedule(self, func: tirx.PrimFunc, workload: Any, config: Config) -> tirx.PrimFunc:
        """Schedule a function that has the anchor's definition, and maybe an epilogue, according to the config."""


class Timeable(Protocol):
    """A loaded candidate, ready to be checked and timed."""

    def relative_error(self) -> float:
        """Run the candidate once and return the relative L2 distance from the reference."""

    def __call__(self, number: int) -> float:
        """Run the candidate `number` times back to back and return the mean seconds of one run."""


class Runner(Protocol):
    """A runner of candidates of one task in this process, which should do nothing else."""

    def load(self, artifact: Path, config: Config) -> Timeable:
        """Load a candidate that the builder wrote."""


@dataclass(frozen=True)
class LocalDevice:
    """A device of this machine: the name of its lock, such as ``cuda-0``, and variables that hide all other devices."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)


class DeviceLocation(StrEnum):
    """Where candidates run, which determines what may run at the same time.

    Nothing disturbs a simulator. The CPU must do nothing else while candidates are timed. A local GPU runs one
    job at a time. A device of another machine serves one client at a time.
    """

    SIMULATOR = "simulator"
    PROCESSOR = "processor"
    GPU = "gpu"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class NetworkEntryPoints:
    """The code that compiles and runs networks for a target, named as ``module:object``.

    The compiler is a function like `anole.compiler.network_compiler.NetworkCompiler`, the runner a class like
    `anole.evaluate.network_runner.NetworkRunner`. They are names because targets must not import these layers.
    """

    compiler: str
    runner: str


DEVICE_NETWORKS = NetworkEntryPoints("anole.compiler.device:compile_for_device", "anole.evaluate.device:DeviceRunner")
"""Entry points for networks that TVM compiles for a device."""


@dataclass(frozen=True)
class CppRuntime:
    """Requirements of a C++ program that loads a build: DLPack's device name (``kDLCPU``), and TVM libraries."""

    device: str
    libraries: tuple[str, ...]


class Target(Protocol):
    """The hardware: one class per kind; see `anole.targets.kind`.

    Attributes:
        networks: the code that compiles and runs networks for the target.
        description: everything that identifies the target, in plain JSON values.
        operators: the names of the operators that the target has templates for.
        template_versions: the versions of all templates, by name.
    """

    networks: NetworkEntryPoints
    description: Mapping[str, Any]
    operators: tuple[str, ...]
    template_versions: Mapping[str, int]

    @property
    def location(self) -> DeviceLocation:
        """Where the target's candidates run when they run on this machine."""

    def absence(self) -> str | None:
        """Return the reason that this machine cannot run or measure anything on the target, or None if it can."""

    def template_version(self, workload: Workload) -> int:
        """Return the version of a workload's template, a part of a task's key; raise TargetError if there is none."""

    def takes(self, workload: Workload, position: int) -> bool:
        """Whether the anchor operator at a position in the network, from 0, runs on the target, not on the host."""

    def in_target_precision(self, workload: Workload) -> Workload:
        """Return a float32 workload in the precision in which the target computes it.

        A dense layer keeps the weight scheme of its model file, or else gets the target's preferred scheme, if any.
        """

    def space(self, workload: Workload) -> Space:
        """Return the space of a workload, without importing a compiler."""

    def default_config(self, workload: Workload) -> Config:
        """Return a valid config that is fast enough to be used without tuning, without importing a compiler."""


class Device(Target, Protocol):
    """Real hardware: TVM compiles for it, and candidates are timed on it.

    Attributes:
        preload: the modules that worker processes import once, before they fork.
        runs_on: the device type in TVM's runtime, such as ``cpu``.
        threads: number of CPU threads that run kernels, or launch them.
        dtypes: the types for which the hardware has multiply-adds, float32 first.
        compiler_options: TVM's options for compiling networks.
        max_relative_error: the relative L2 distance from the reference above which a kernel's result is wrong.
    """

    preload: tuple[str, ...]
    runs_on: str
    threads: int
    dtypes: tuple[str, ...]
    compiler_options: Mapping[str, Any]
    max_relative_error: float
    cpp_runtime: CppRuntime

    @property
    def location(self) -> Literal[DeviceLocation.PROCESSOR, DeviceLocation.GPU]:
        """Where candidates run; building candidates disturbs only the CPU."""

    def template(self, workload: Workload) -> Template:
        """Return the template of a workload's operator."""

    def schedule_default(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Schedule a function without an anchor by default rules; this never fails."""

    def compiler_target(self) -> tvm.target.Target:
        """Return TVM's description of the target."""

    def compiler_pipeline(self) -> str:
        """Return the name of the TVM pipeline that lowers the target's kernels."""

    def runtime_objects(self, folder: Path) -> Sequence[Path]:
        """Compile into a folder the objects that every library for the device is linked with; return their paths.

        It raises MachineError if they cannot be compiled.
        """

    def environment(self) -> Mapping[str, str]:
        """Return the environment variables of a process that runs candidates."""

    def build(self, workload: Workload, config: Config, artifact: Path) -> None:
        """Build a candidate with the canonical epilogue (`anole.targets.shared.kernel.define`) into a file."""

    def units(self) -> Sequence[LocalDevice]:
        """Return the devices of this machine that match the target; raise TargetError if there is none."""

    def runner(self, workload: Workload) -> Runner:
        """Return a runner for candidates of a workload in this process."""

    def remote_runner(self, workload: Workload, session: tvm.rpc.RPCSession) -> Runner:
        """Return a runner for candidates on the device of a server; raise TargetError if it has no such device."""

    def peak_gflops(self, dtype: str = "float32") -> float:
        """Measure, in this process, the peak speed of multiply-adds of one of `dtypes`."""


class DynamicShapeDevice(Device, Protocol):
    """Hardware for which one build may serve a range of sizes."""

    def spread(self, workload: Workload, config: Config) -> Config:
        """Adapt a config to a range of sizes, without changing the layout of the packed weights."""


class ProfilableDevice(Device, Protocol):
    """A device on which each kernel can be timed while the entire network runs."""

    def copy_bytes_per_s(self) -> float:
        """Measure, in this process, the device's memory copy bandwidth."""


class Simulator(Target, Protocol):
    """Simulated hardware: a candidate's latency is computed exactly, on any machine and under any load."""

    @property
    def location(self) -> Literal[DeviceLocation.SIMULATOR]:
        """Where the simulator's candidates run."""

    def simulate(self, workload: Workload, config: Config) -> float:
        """Return the simulated seconds of one run with the canonical epilogue (bias, shift, clip).

        It raises ConfigError, with the reason, if the config cannot be run.
        """


def named_object(name: str) -> Any:
    """Import and return the object that ``module:object`` names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def version_of(workload: Workload, versions: Mapping[str, int], target: str) -> int:
    """Return the version of the template of a workload's operator; raise TargetError if there is none."""
    if workload.operator not in versions:
        raise TargetError(f"{target} has no template for {workload.operator!r}; it has {', '.join(versions)}")
    return versions[workload.operator]
