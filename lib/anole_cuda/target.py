"""The NVIDIA GPU target; everything except running candidates works without a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anole.errors import ConfigError, TargetError
from anole.record import Config
from anole.space.space import Space
from anole.targets.base import DEVICE_NETWORKS, MAX_RELATIVE_ERROR, CppRuntime, DeviceLocation, LocalDevice, version_of
from anole.targets.kind import is_open
from anole.task import Workload, without_weight_scheme
from anole_cuda.device.architecture import BlockLimits
from anole_cuda.device.gpu_specs import GpuSpecs
from anole_cuda.device.machine import Gpu, check_architecture, compiler_environment, present_gpus
from anole_cuda.templates import algorithms

if TYPE_CHECKING:
    import tvm
    from tvm import tirx

    from anole.targets.base import Runner, Template


class CudaTarget:
    """GPUs of one architecture.

    Args:
        description: has ``arch``, such as ``sm_90``, and ``limits``; ``space`` only if it is open.
    """

    operators: tuple[str, ...] = ("batch_matmul", "conv2d", "dense")
    location: Final = DeviceLocation.GPU
    networks = DEVICE_NETWORKS
    preload: tuple[str, ...] = ("anole_cuda.device.builder",)
    runs_on = "cuda"
    cpp_runtime = CppRuntime("kDLCUDA", ("tvm_runtime", "tvm_runtime_cuda"))
    threads = 1
    dtypes: tuple[str, ...] = ("float32",)
    max_relative_error = MAX_RELATIVE_ERROR
    template_versions: Mapping[str, int] = {"batch_matmul": 1, "conv2d": 2, "dense": 2}
    # Parts with static shapes are captured once as a CUDA graph and then launched by a single call.
    compiler_options: Mapping[str, Any] = {"relax.backend.use_cuda_graph": True}

    def __init__(self, description: Mapping[str, Any]) -> None:
        self.description = description
        self.limits = BlockLimits(**description["limits"])
        self.gpu = GpuSpecs.of(description["arch"])
        self.open = is_open(description)
        if self.open:
            self.template_versions = {**self.template_versions, "open": algorithms.OPEN_SPACE_VERSION}

    def absence(self) -> str | None:
        """Return why candidates cannot run here: there is no GPU, or none with this architecture and model."""
        gpus = self._matching_gpus()
        return gpus if isinstance(gpus, str) else None

    def _matching_gpus(self) -> list[Gpu] | str:
        """Return the GPUs of this machine that match the description, or why there are none."""
        present, arch, model = present_gpus(), self.description["arch"], self.description.get("model")
        if not present:
            return f"cuda {arch}: found no GPU on this machine, so nothing can be run or measured on one"
        same_architecture = [gpu for gpu in present if gpu.architecture == arch]
        if not same_architecture:
            gpu_arch = present[0].architecture
            return f"cuda {arch}: this machine's GPU is {gpu_arch}; set `arch: {gpu_arch}` to run on it"
        name = same_architecture[0].name
        return [gpu for gpu in same_architecture if model in (None, gpu.name)] or (
            f"cuda {arch}: this machine's GPU is a {name}, not a {model}; set its `model` to run on it"
        )

    def template_version(self, workload: Workload) -> int:
        """Return the version of a workload's templates; raise TargetError if there are none."""
        version = version_of(workload, self.template_versions, "cuda")
        return version + (algorithms.OPEN_SPACE_VERSION if self.open else 0)

    def takes(self, workload: Workload, position: int) -> bool:
        """Whether the GPU has a template for the operator."""
        return workload.operator in self.operators

    def in_target_precision(self, workload: Workload) -> Workload:
        """Return the workload with plain float32 weights."""
        return without_weight_scheme(workload)

    def space(self, workload: Workload) -> Space:
        """Return the space of a workload."""
        create = algorithms.open_space if self.open else algorithms.space_of
        return create(self.limits, self.gpu, workload)

    def default_config(self, workload: Workload) -> Config:
        """Return a valid config with reasonable speed, without tuning; open spaces contain it, too."""
        if self.open:
            return algorithms.space_without_winograd(self.limits, self.gpu, workload).best_sampled
        return algorithms.default_config(self.limits, self.gpu, workload)

    def template(self, workload: Workload) -> Template:
        """Return the template of a workload's operator."""
        return algorithms.template_of(workload, direct=self.open)

    def schedule_default(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Schedule a function without an anchor by TVM's own rules for GPUs (dlight)."""
        from anole.targets.shared.recurrence import recurrence_of
        from anole_cuda.default.recurrence import schedule_recurrence
        from anole_cuda.default.schedule import schedule_default

        if (recurrence := recurrence_of(func)) is not None:
            return schedule_recurrence(recurrence)
        return schedule_default(func, self.compiler_target())

    def compiler_target(self) -> tvm.target.Target:
        """Return TVM's target, and prepare this process to compile CUDA to binaries."""
        from anole_cuda.device.builder import cuda_target, prepare_to_compile

        check_architecture(self.description["arch"])
        prepare_to_compile()
        return cuda_target(self.description)

    def compiler_pipeline(self) -> str:
        """Return the name of TVM's default pipeline."""
        return "default"

    def runtime_objects(self, folder: Path) -> Sequence[Path]:
        """Return nothing: the host code has no parallel loops that need Anole's thread pool."""
        return ()

    def environment(self) -> Mapping[str, str]:
        """Return the paths of CUDA's headers, and a thread count of 1 for the host, which only launches kernels."""
        threads = str(self.threads)
        return {"TVM_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, **compiler_environment()}

    def build(self, workload: Workload, config: Config, artifact: Path) -> None:
        """Build a candidate without a GPU; raise ConfigError if a block exceeds a limit, as in AutoTVM's builder."""
        from anole_cuda.device.builder import build

        if self.open:
            constrained = algorithms.space_without_winograd(self.limits, self.gpu, workload)
            if (reason := constrained.refusal(config)) is not None:
                raise ConfigError(reason)
        build(self.template(workload), workload, config, self.description, artifact)

    def units(self) -> Sequence[LocalDevice]:
        """Return the GPUs of this machine with the target's architecture and model."""
        if isinstance(gpus := self._matching_gpus(), str):
            raise TargetError(gpus)
        return [LocalDevice(f"cuda-{gpu.index}", {"CUDA_VISIBLE_DEVICES": gpu.uuid}) for gpu in gpus]

    def runner(self, workload: Workload) -> Runner:
        """Return a runner of the workload's candidates in this process, on the first visible GPU."""
        self.units()
        from tvm import rpc

        from anole_cuda.device.builder import prepare_to_compile

        prepare_to_compile()
        return self.remote_runner(workload, rpc.LocalSession())

    def remote_runner(self, workload: Workload, session: tvm.rpc.RPCSession) -> Runner:
        """Return a runner of the workload's candidates on the first GPU of a server."""
        from anole_cuda.device.runner import cuda_runner

        return cuda_runner(self.template(workload), workload, self.description["arch"], session)

    def peak_gflops(self, dtype: str = "float32") -> float:
        """Measure, in this process, the multiply-add rate of all multiprocessors on registers."""
        self.units()
        from anole_cuda.device.peak import peak_gflops

        return peak_gflops(self.description)
