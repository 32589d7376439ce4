"""The CPU as a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anole.errors import TargetError
from anole.machine import describe_cpu, describe_remote_cpu
from anole.processor import processor
from anole.record import Config
from anole.space.space import Space
from anole.targets.base import Unit
from anole.targets.cpu import batch_matmul_space, conv2d_space, dense_space, depthwise_space
from anole.targets.cpu.vector_unit import VectorUnit
from anole.task import BatchMatmul, Conv2d, Workload

if TYPE_CHECKING:
    import tvm
    from tvm import tirx

    from anole.targets.base import Runner, Template

_VERSIONS = {
    "batch_matmul": batch_matmul_space.VERSION,
    "conv2d": conv2d_space.VERSION,
    "dense": dense_space.VERSION,
}
_FLOAT_BYTES = 4


class CpuTarget:
    """The processor of this machine, with a number of threads.

    Args:
        description: its ``mcpu`` (LLVM's name), ``features`` and ``threads``.
    """

    operators = tuple(_VERSIONS)
    shares_cores = True
    preload: tuple[str, ...] = ("anole.targets.cpu.builder", "anole.targets.cpu.runner")
    runs_on = "cpu"
    compiler_options: Mapping[str, Any] = {}

    def __init__(self, description: Mapping[str, Any]) -> None:
        self.description = description
        self.threads = int(description["threads"])
        self.unit = VectorUnit.of(description)

    @staticmethod
    def describe(mcpu: str | None = None, threads: int | None = None, model: str | None = None) -> dict[str, Any]:
        """Returns the description of this machine's processor, or of another one's that is called a model.

        See `anole.machine.describe_cpu` and `anole.machine.describe_remote_cpu`.
        """
        if model is None or mcpu is None or threads is None:
            return describe_cpu(mcpu, threads)
        return describe_remote_cpu(model, mcpu, threads)

    def absence(self) -> str | None:
        """Returns why nothing can be run here, where another machine's processor is meant."""
        here, meant = processor().name, self.description["model"]
        return None if meant == here else f"cpu {meant}: this machine's processor is {here}"

    def template_version(self, operator: str) -> int:
        """Returns the version of an operator's template.

        Raises:
            TargetError: there is no template for the operator.
        """
        if operator not in _VERSIONS:
            raise TargetError(f"the cpu has no template for {operator!r}; it has {', '.join(_VERSIONS)}")
        return _VERSIONS[operator]

    def takes(self, workload: Workload, position: int) -> bool:
        """Returns True: the processor runs everything."""
        return True

    def space(self, workload: Workload) -> Space:
        """Returns the knobs of a workload."""
        space, _ = _knobs_of(workload)
        return space(self.unit, self.threads, workload)

    def default_config(self, workload: Workload) -> Config:
        """Returns a valid config that is decent without any tuning."""
        _, default = _knobs_of(workload)
        return default(self.unit, self.threads, workload)

    def template(self, workload: Workload) -> Template:
        """Returns the template of a workload's operator."""
        if isinstance(workload, Conv2d):
            if depthwise_space.is_depthwise(workload):
                from anole.targets.cpu.depthwise import DepthwiseTemplate

                return DepthwiseTemplate(self.unit)
            from anole.targets.cpu.conv2d import Conv2dTemplate

            return Conv2dTemplate(self.unit)
        if isinstance(workload, BatchMatmul):
            from anole.targets.cpu.batch_matmul import BatchMatmulTemplate

            return BatchMatmulTemplate(self.unit)
        from anole.targets.cpu.dense import DenseTemplate

        return DenseTemplate(self.unit)

    def schedule_default(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Returns a function that is no anchor, parallel and vectorised where that pays."""
        from anole.targets.cpu.default_schedule import Machine, schedule_default

        return schedule_default(func, Machine(self.threads, _FLOAT_BYTES * self.unit.lanes))

    def compiler_target(self) -> tvm.target.Target:
        """Returns what TVM calls this target."""
        from anole.targets.cpu.builder import llvm_target

        return llvm_target(self.description)

    def environment(self) -> Mapping[str, str]:
        """Returns the thread counts; TVM by itself would use half of the logical processors."""
        return {"TVM_NUM_THREADS": str(self.threads), "OMP_NUM_THREADS": str(self.threads)}

    def build(self, workload: Workload, config: Config, artifact: Path) -> None:
        """Builds one candidate with the canonical epilogue into a shared library."""
        from anole.targets.cpu.builder import build

        build(self.template(workload), workload, config, self.description, artifact)

    def units(self) -> Sequence[Unit]:
        """Returns the processor, of which there is one."""
        return (Unit("cpu"),)

    def runner(self, workload: Workload) -> Runner:
        """Returns what runs candidates of a workload in this process."""
        from anole.targets.cpu.runner import CpuRunner

        return CpuRunner(self.template(workload), workload)

    def remote_runner(self, workload: Workload, session: tvm.rpc.RPCSession) -> Runner:
        """Returns what runs candidates of a workload on the processor of a server."""
        from anole.targets.cpu.remote import remote_runner

        return remote_runner(self.template(workload), workload, self.threads, session)

    def peak_gflops(self) -> float:
        """Measures, in this process, how many multiply-adds all threads do from registers."""
        from anole.targets.cpu.peak import PeakKernel

        return PeakKernel(self.description).gflops()

    def copy_bytes_per_s(self) -> float:
        """Measures, in this process, how fast all threads copy memory."""
        from anole.targets.cpu.bandwidth import CopyKernel

        return CopyKernel(self.description).bytes_per_s()


def _knobs_of(
    workload: Workload,
) -> tuple[Callable[[VectorUnit, int, Any], Space], Callable[[VectorUnit, int, Any], Config]]:
    """Returns what makes the space of a workload's template, and its default config."""
    if isinstance(workload, Conv2d):
        if depthwise_space.is_depthwise(workload):
            return depthwise_space.depthwise_space, depthwise_space.depthwise_default
        return conv2d_space.conv2d_space, conv2d_space.conv2d_default
    if isinstance(workload, BatchMatmul):
        return batch_matmul_space.batch_matmul_space, batch_matmul_space.batch_matmul_default
    return dense_space.dense_space, dense_space.dense_default
