"""The roles of a target: its spaces, its templates, its builder, its runner, and what else it can do."""

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
"""The default for how far a kernel's answer may be from the right one, as the relative L2 distance."""


class Template(Protocol):
    """Code that turns a workload and a config into a program, in steps that the compiler of a network calls one by one.

    The compiler packs constant weights once, and fuses epilogues (bias, residual add, relu) behind `compute` before it
    calls `schedule`. Where the second operand is computed too, nothing can be packed ahead: the packed weight is that
    operand, unchanged.
    """

    def packed_shape(self, workload: Any, config: Config) -> tuple[int, ...]:
        """Return the shape of the packed weight; configs with equal shapes pack the weight in the same way."""

    def pack_weight(self, workload: Any, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Return the weight in the layout that the config reads, from HWIO for conv2d and (in, out) for dense."""

    def compute(self, workload: Any, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Return the anchor operator's definition over data and packed weight; its block carries `ANCHOR`."""

    def schedule(self, func: tirx.PrimFunc, workload: Any, config: Config) -> tirx.PrimFunc:
        """Schedule a function that holds the anchor's definition, and maybe an epilogue, by the config."""


class Timeable(Protocol):
    """A loaded candidate, ready to be checked and timed."""

    def relative_error(self) -> float:
        """Run the candidate once and returns the relative L2 distance from the reference."""

    def __call__(self, number: int) -> float:
        """Run the candidate `number` times back to back and return the mean seconds of one run."""


class Runner(Protocol):
    """Runs candidates of one task in this process, which should do nothing else."""

    def load(self, artifact: Path, config: Config) -> Timeable:
        """Load what the builder wrote."""


@dataclass(frozen=True)
class LocalDevice:
    """A device of this machine: the name of its lock, such as ``cuda-0``, and variables that hide all other devices."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)


class Place(StrEnum):
    """Where candidates run, which decides what may run beside them.

    Nothing disturbs a simulator. The processor must do nothing else while it is timed. A GPU of this machine runs one
    job at a time. A device of another machine serves one client at a time.
    """

    SIMULATOR = "simulator"
    PROCESSOR = "processor"
    GPU = "gpu"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class NetworkEntryPoints:
    """The code that compiles and runs whole networks for a target, named as ``module:object``.

    The compiler is a function like `anole.compile.network_compiler.NetworkCompiler`, the runner a class like
    `anole.evaluate.network_runner.NetworkRunner`. Both stand above the targets in the order of imports.
    """

    compiler: str
    runner: str


DEVICE_NETWORKS = NetworkEntryPoints("anole.compile.device:compile_for_device", "anole.evaluate.device:DeviceRunner")
"""Networks are compiled by TVM for a device and timed on the device."""


@dataclass(frozen=True)
class CppRuntime:
    """What a C++ program needs to load a build: DLPack's name of the device (``kDLCPU``), and libraries of TVM."""

    device: str
    libraries: tuple[str, ...]


class Target(Protocol):
    """The hardware: one class for each kind, see `anole.targets.kind`.

    Attributes:
        networks: the code that compiles and runs whole networks for the target.
        description: everything that identifies the target, in plain JSON values.
        operators: the names of the operators that the target has templates for.
        template_versions: the versions of all templates, by their names.
    """

    networks: NetworkEntryPoints
    description: Mapping[str, Any]
    operators: tuple[str, ...]
    template_versions: Mapping[str, int]

    @property
    def place(self) -> Place:
        """Where the target's candidates run when they run on this machine."""

    def absence(self) -> str | None:
        """Return why this machine cannot run or measure anything on the target, or None when it can."""

    def template_version(self, workload: Workload) -> int:
        """Return the version of a workload's template, a part of a task's key; raise TargetError if there is none."""

    def takes(self, workload: Workload, position: int) -> bool:
        """Whether the anchor operator at a position in the network, from 0, runs here and not on the host."""

    def narrowed(self, workload: Workload) -> Workload:
        """Return a workload of float32 in the type in which the target computes it.

        A dense layer has its weights stored as a file says, as the target would rather have them, or plainly.
        """

    def space(self, workload: Workload) -> Space:
        """Return the space of a workload; needs no compiler."""

    def default_config(self, workload: Workload) -> Config:
        """Return a valid config that is fast enough to be used without tuning; needs no compiler."""


class Device(Target, Protocol):
    """Real hardware: TVM compiles for it, and candidates are timed on it.

    Attributes:
        preload: the modules that worker processes import once, before they fork.
        runs_on: the name of the kind of device in TVM's runtime, such as ``cpu``.
        threads: how many threads of the processor run kernels, or launch them.
        dtypes: the types of numbers that the hardware has multiply-adds of, float32 first.
        compiler_options: TVM's options for compiling whole networks.
        max_relative_error: the relative L2 distance from the reference above which a kernel's answer is wrong.
        cpp_runtime: what a C++ program needs to load a build.
    """

    preload: tuple[str, ...]
    runs_on: str
    threads: int
    dtypes: tuple[str, ...]
    compiler_options: Mapping[str, Any]
    max_relative_error: float
    cpp_runtime: CppRuntime

    @property
    def place(self) -> Literal[Place.PROCESSOR, Place.GPU]:
        """Where candidates run; building candidates disturbs only the processor."""

    def template(self, workload: Workload) -> Template:
        """Return the template of a workload's operator."""

    def schedule_default(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Schedule a function without an anchor by default rules; never fails."""

    def compiler_target(self) -> tvm.target.Target:
        """Return the target as TVM describes it."""

    def compiler_pipeline(self) -> str:
        """Return the name of the TVM pipeline that lowers the target's kernels."""

    def runtime_objects(self, folder: Path) -> Sequence[Path]:
        """Write into a folder the objects that every library for the device is linked with, and returns them.

        It raises MachineError if they cannot be compiled.
        """

    def environment(self) -> Mapping[str, str]:
        """Return the environment variables of a process that runs candidates."""

    def build(self, workload: Workload, config: Config, artifact: Path) -> None:
        """Build a candidate with the canonical epilogue (`anole.targets.shared.kernel.define`) into a file."""

    def units(self) -> Sequence[LocalDevice]:
        """Return the devices of this machine that match the target; raises TargetError if there is none."""

    def runner(self, workload: Workload) -> Runner:
        """Return a runner for candidates of a workload in this process."""

    def remote_runner(self, workload: Workload, session: tvm.rpc.RPCSession) -> Runner:
        """Return a runner for candidates on the device of a server; raise TargetError if it has no such device."""

    def peak_gflops(self, dtype: str = "float32") -> float:
        """Measures in this process the speed that no kernel that multiplies numbers of one of `dtypes` can exceed."""


class DynamicShapeDevice(Device, Protocol):
    """Hardware for which one build may serve a range of sizes."""

    def spread(self, workload: Workload, config: Config) -> Config:
        """Return a config with the same packed weights that suits other sizes than the workload's, too."""


class ProfilableDevice(Device, Protocol):
    """A device on which each kernel can be timed while a whole network runs."""

    def copy_bytes_per_s(self) -> float:
        """Measures, in this process, how fast the device copies its memory."""


class Simulator(Target, Protocol):
    """Simulated hardware: a candidate's latency is computed exactly, on any machine and beside any other work."""

    @property
    def place(self) -> Literal[Place.SIMULATOR]:
        """Where its candidates run."""

    def simulate(self, workload: Workload, config: Config) -> float:
        """Return the seconds of one run with the canonical epilogue (bias, shift, clip).

        It raises ConfigError if the config cannot be run; the message is the reason.
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
