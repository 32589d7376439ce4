"""What a target must give: spaces, templates that turn (workload, config) into programs, a builder and a runner."""

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

MAX_RELATIVE_ERROR = 1e-4
"""How far a kernel's answer may be from the right one, as their L2 distance, unless something else is said."""


class Template(Protocol):
    """Code that turns a workload and a config into a program, in steps that a whole graph can take apart.

    A graph packs constant weights once, at compile time, and fuses epilogues (bias, residual add, relu) behind
    `compute` before it calls `schedule`. Where the second operand is computed too, there is nothing to pack ahead:
    the packed weight is that operand as it is.
    """

    def packed_shape(self, workload: Any, config: Config) -> tuple[int, ...]:
        """Returns the shape of the packed weight; configs of one shape pack it alike."""

    def pack_weight(self, workload: Any, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Returns the weight in the layout that the config reads; given HWIO for conv2d, (in, out) for dense."""

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
    """Runs candidates of one task in the present process, which should do nothing else."""

    def load(self, artifact: Path, config: Config) -> Timeable:
        """Loads what the builder wrote."""


@dataclass(frozen=True)
class Unit:
    """One of the devices of a kind that this machine has.

    Attributes:
        name: of its lock, such as ``cpu`` or ``cuda-0``.
        environment: the variables by which a process sees this one alone.
    """

    name: str
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)


class Place(StrEnum):
    """Where candidates run, which decides what else may run beside them.

    On a simulator nothing disturbs them; the processor must do nothing else; a GPU of this machine has one job at
    a time; a device elsewhere hands itself to one client at a time.
    """

    SIMULATOR = "simulator"
    PROCESSOR = "processor"
    GPU = "gpu"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class NetworkHandlers:
    """What handles whole networks for a target: it stands above the targets, so it is named as ``module:object``.

    Attributes:
        compiler: a function, see `anole.compile.network_compiler.NetworkCompiler`.
        runner: a class, see `anole.evaluate.network_runner.NetworkRunner`.
    """

    compiler: str
    runner: str


DEVICE_NETWORKS = NetworkHandlers("anole.compile.device:compile_for_device", "anole.evaluate.device:DeviceRunner")
"""Networks that TVM compiles for a device, and that are timed on it."""


@dataclass(frozen=True)
class CppRuntime:
    """What a C++ program that loads a build is made of.

    Attributes:
        device: DLPack's name of the kind of device, such as ``kDLCPU``.
        libraries: the libraries of TVM's runtime that it is linked with.
    """

    device: str
    libraries: tuple[str, ...]


class Target(Protocol):
    """The hardware: one class for each kind, see `anole.targets.kind`.

    Attributes:
        networks: what compiles and runs whole networks for it.
        description: everything that identifies it, in plain JSON values.
        operators: the names of those that it has templates for.
        template_versions: of all its templates, by their names.
    """

    networks: NetworkHandlers
    description: Mapping[str, Any]
    operators: tuple[str, ...]
    template_versions: Mapping[str, int]

    @property
    def place(self) -> Place:
        """Where its candidates run on this machine: never elsewhere."""

    def observable(self) -> Observable | None:
        """Returns itself where the kernels of its networks can be timed one by one, to be profiled and refined."""

    def absence(self) -> str | None:
        """Returns why nothing can be run or measured on it from this machine, or None when it can."""

    def template_version(self, workload: Workload) -> int:
        """Returns the version of a workload's template; a part of a task's key.

        Raises:
            TargetError: there is no template for its operator.
        """

    def takes(self, workload: Workload, position: int) -> bool:
        """Returns whether an anchor operator runs on the target, and not on the host beside it.

        Args:
            workload: of the operator.
            position: among the network's anchor operators, from 0.
        """

    def space(self, workload: Workload) -> Space:
        """Returns the knobs of a workload; needs no compiler."""

    def default_config(self, workload: Workload) -> Config:
        """Returns a valid config that is decent without any tuning; needs no compiler."""


class Device(Target, Protocol):
    """Hardware that is there: TVM compiles for it, and candidates are timed on it.

    Attributes:
        preload: the modules that its worker processes import once, before they fork.
        runs_on: what TVM's runtime calls the kind of device, such as ``cpu``.
        threads: of the processor, that run kernels or launch them.
        compiler_options: of TVM, for whole networks.
        max_relative_error: the L2 distance from the reference beyond which a kernel's answer is wrong.
        cpp_runtime: what loads its builds in C++.
    """

    preload: tuple[str, ...]
    runs_on: str
    threads: int
    compiler_options: Mapping[str, Any]
    max_relative_error: float
    cpp_runtime: CppRuntime

    @property
    def place(self) -> Literal[Place.PROCESSOR, Place.GPU]:
        """Where its candidates run: building them disturbs them on the processor alone."""

    def template(self, workload: Workload) -> Template:
        """Returns the template of a workload's operator."""

    def schedule_default(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Returns a function that is no anchor, scheduled decently; never fails."""

    def compiler_target(self) -> tvm.target.Target:
        """Returns what TVM calls this target."""

    def compiler_pipeline(self) -> str:
        """Returns what TVM calls the pipeline that lowers the target's kernels."""

    def environment(self) -> Mapping[str, str]:
        """Returns the environment variables that a process that runs candidates needs."""

    def build(self, workload: Workload, config: Config, artifact: Path) -> None:
        """Builds one candidate with the canonical epilogue, see `anole.targets.shared.kernel.define`, into a file."""

    def units(self) -> Sequence[Unit]:
        """Returns the devices of this machine that are such a target.

        Raises:
            TargetError: there is none.
        """

    def runner(self, workload: Workload) -> Runner:
        """Returns what runs candidates of a workload in this process."""

    def remote_runner(self, workload: Workload, session: tvm.rpc.RPCSession) -> Runner:
        """Returns what runs candidates of a workload on the device of a server.

        Raises:
            TargetError: the server has no such device.
        """

    def peak_gflops(self) -> float:
        """Measures, in this process, what no kernel of the target can exceed."""


class Observable(Device, Protocol):
    """A device whose networks let themselves be watched: each kernel is timed while the network runs."""

    def copy_bytes_per_s(self) -> float:
        """Measures, in this process, how fast the device copies its memory."""


class Simulator(Target, Protocol):
    """Hardware that is simulated: what a candidate takes is computed, exactly, anywhere and beside anything else."""

    @property
    def place(self) -> Literal[Place.SIMULATOR]:
        """Where its candidates run."""

    def simulate(self, workload: Workload, config: Config) -> float:
        """Returns the seconds of one run with the canonical epilogue (bias, shift, clip).

        Raises:
            ConfigError: the config cannot be run; the message is the reason.
        """


def named_object(name: str) -> Any:
    """Returns what ``module:object`` names, and imports it when that was not done before."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def version_of(workload: Workload, versions: Mapping[str, int], target: str) -> int:
    """Returns the version of the template of a workload's operator.

    Raises:
        TargetError: there is none for the operator.
    """
    if workload.operator not in versions:
        raise TargetError(f"{target} has no template for {workload.operator!r}; it has {', '.join(versions)}")
    return versions[workload.operator]
