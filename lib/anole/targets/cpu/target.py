"""The CPU target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anole.host.machine import available_threads
from anole.host.processor import processor
from anole.record import Config
from anole.space.space import Space
from anole.targets.base import DEVICE_NETWORKS, MAX_RELATIVE_ERROR, CppRuntime, DeviceLocation, LocalDevice, version_of
from anole.targets.cpu.device.precision import DTYPES, FLOAT32, STORED_WEIGHTS, UINT8, has_8bit_products, precisions_of
from anole.targets.cpu.device.vector_unit import FLOAT_BYTES, VectorUnit
from anole.targets.cpu.templates import programs
from anole.targets.cpu.templates.packed_operands import packed_word_dtype, with_packed_words
from anole.targets.cpu.templates.register_tiles import is_small
from anole.targets.kind import is_open
from anole.task import Workload, weight_scheme

if TYPE_CHECKING:
    import tvm
    from tvm import tirx

    from anole.targets.base import Runner, Template


class CpuTarget:
    """A CPU with a number of threads; see `describe_cpu` for its description."""

    operators: tuple[str, ...] = ("attention", "batch_matmul", "conv2d", "dense")
    location: Final = DeviceLocation.PROCESSOR
    networks = DEVICE_NETWORKS
    preload: tuple[str, ...] = ("anole.targets.cpu.device.builder", "anole.targets.cpu.device.runner")
    runs_on = "cpu"
    cpp_runtime = CppRuntime("kDLCPU", ("tvm_runtime",))
    compiler_options: Mapping[str, Any] = {}
    template_versions: Mapping[str, int] = programs.VERSIONS

    def __init__(self, description: Mapping[str, Any]) -> None:
        self.description = description
        self.threads = int(description["threads"])
        self.unit = VectorUnit.of(description)
        self.max_relative_error = float(description.get("max_relative_error", MAX_RELATIVE_ERROR))
        self.exact = bool(description.get("exact", False))
        self.open = is_open(description)
        self.dtype = DTYPES[str(description.get("precision", FLOAT32))]
        self.weights = STORED_WEIGHTS.get(str(description.get("weights")))
        features = description.get("features", ())
        self.dtypes = (
            *dict.fromkeys(DTYPES[precision] for precision in precisions_of(features)),
            *((UINT8,) if has_8bit_products(features) else ()),
        )
        if self.open:
            self.template_versions = {**self.template_versions, **programs.OPEN_VERSIONS}

    def absence(self) -> str | None:
        """Return the reason that nothing can be measured: the CPU differs, or this process may use too few threads."""
        local_name, expected_name, n_threads = processor().name, self.description["model"], available_threads()
        if expected_name == local_name and self.threads <= n_threads:
            return None
        return (
            f"cpu {expected_name} with {self.threads} threads: this machine's CPU is {local_name}, "
            f"and this process may use {n_threads} threads"
        )

    def template_version(self, workload: Workload) -> int:
        """Return the version of a workload's template, the sum of its parts' versions.

        Sums may collide over time, when one part's version rises and another part is removed. A fix would change the
        keys of tasks; it waits until they change anyway.
        """
        version_of(workload, programs.VERSIONS, "the cpu")
        parts = programs.program_parts(self.unit, workload, self.exact, self.open)
        return sum({**programs.VERSIONS, **programs.OPEN_VERSIONS}[part] for part in parts)

    def takes(self, workload: Workload, position: int) -> bool:
        """Return True: the CPU runs every operator."""
        return True

    def in_target_precision(self, workload: Workload) -> Workload:
        """Cast a float32 workload to the target's precision, or to 8 bits if its values are integers, if faster.

        A dense layer for which weight-only quantization should be faster keeps float32 data and accumulators.
        """
        workload = programs.weight_only(workload, self.weights)
        if weight_scheme(workload) is not None:
            return workload
        dtype = self.dtype
        if getattr(workload, "exact", False):
            dtype = UINT8 if UINT8 in self.dtypes else FLOAT32
        if dtype == FLOAT32:
            return workload
        return programs.in_target_precision(self.unit, self._sharing_threads(workload), workload, dtype)

    def space(self, workload: Workload) -> Space:
        """Return the space of a workload."""
        return self._programs(workload).space(self.unit, self._sharing_threads(workload), workload)

    def default_config(self, workload: Workload) -> Config:
        """Return a valid config with reasonable speed, without tuning; open spaces also contain it."""
        return self._programs(workload).default_config(self.unit, self._sharing_threads(workload), workload)

    def spread(self, workload: Workload, config: Config) -> Config:
        """Adapt a config to a range of sizes, without changing the layout of the packed weights."""
        return programs.spread(self._sharing_threads(workload), workload, config)

    def template(self, workload: Workload) -> Template:
        """Return the template of a workload's operator."""
        return self._programs(workload).template_for(self.unit)

    def _programs(self, workload: Workload) -> programs.Programs:
        return programs.programs_of(self.unit, workload, self.exact, self.open)

    def _sharing_threads(self, workload: Workload) -> int:
        """Return the number of threads that share a layer: all, or only the calling one if the layer is small."""
        return 1 if is_small(with_packed_words(workload)) else self.threads

    def schedule_default(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Parallelize and vectorize a function without an anchor where that pays."""
        from anole.targets.cpu.default.loop_nests import Machine
        from anole.targets.cpu.default.recurrence import recurrence_tilings
        from anole.targets.cpu.default.schedule import schedule_default
        from anole.targets.shared.recurrence import recurrence_of
        from anole.targets.shared.recurrent_kernel import recurrent_kernel

        if (recurrence := recurrence_of(func)) is not None:
            return recurrent_kernel(recurrence, *recurrence_tilings(recurrence, self.threads, self.unit))
        return schedule_default(func, Machine(self.threads, FLOAT_BYTES * self.unit.lanes))

    def compiler_target(self) -> tvm.target.Target:
        """Return TVM's target."""
        from anole.targets.cpu.device.builder import llvm_target

        return llvm_target(self.description)

    def compiler_pipeline(self) -> str:
        """Return the name of the TVM pipeline that lowers the target's kernels."""
        from anole.targets.cpu.device.lowering import pipeline

        return pipeline()

    def runtime_objects(self, folder: Path) -> Sequence[Path]:
        """Compile the runtime: threads for parallel loops and, if the CPU has AMX, matrix tiles."""
        from anole.targets.cpu.device.builder import runtime_objects

        return runtime_objects(self.description, folder)

    def environment(self) -> Mapping[str, str]:
        """Return the variables that set the thread counts of kernels, of TVM, and of compared frameworks."""
        return dict.fromkeys(("ANOLE_NUM_THREADS", "TVM_NUM_THREADS", "OMP_NUM_THREADS"), str(self.threads))

    def build(self, workload: Workload, config: Config, artifact: Path) -> None:
        """Build one candidate with the canonical epilogue into a shared library."""
        from anole.targets.cpu.device.builder import build

        build(self.template(workload), workload, config, self.description, artifact)

    def units(self) -> Sequence[LocalDevice]:
        """Return the only device: the CPU."""
        return (LocalDevice("cpu"),)

    def runner(self, workload: Workload) -> Runner:
        """Return a runner of the workload's candidates in this process."""
        from anole.targets.cpu.device.runner import CpuRunner

        return CpuRunner(self.template(workload), workload)

    def remote_runner(self, workload: Workload, session: tvm.rpc.RPCSession) -> Runner:
        """Return a runner of the workload's candidates on a server's CPU."""
        from anole.targets.cpu.device.runner import remote_runner

        return remote_runner(self.template(workload), workload, self.threads, session)

    def peak_gflops(self, dtype: str = "float32") -> float:
        """Measure, in this process, the multiply-add rate of all threads on registers or tiles."""
        from anole.targets.cpu.device.peak import peak_gflops

        return peak_gflops(self.description, packed_word_dtype(dtype))

    def copy_bytes_per_s(self) -> float:
        """Measure, in this process, the memory bandwidth of copies by all threads."""
        from anole.targets.cpu.device.peak import copy_bytes_per_s

        return copy_bytes_per_s(self.description)
