"""What this machine is, how fast it could be, and what is missing."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from typing import Any

from anole.errors import MeasureError
from anole.machine import describe_cpu, host_facts, software_versions
from anole.measure.lock import device_lock, lock_path
from anole.measure.worker import CallFailed, Worker, WorkerDied, WorkerTimeout
from anole.targets import get_device
from anole.targets.cuda.architecture import present_architecture
from anole.targets.cuda.toolchain import compilers

_TIMEOUT_S = 60.0


def report() -> str:
    """Returns what there is to know, a line each."""
    description, host = describe_cpu(), host_facts()
    lines = {
        "processor": f"{host['processor']} ({host['architecture']}, {host['cores']} cores)",
        "memory": f"{host['memory_bytes'] / 2**30:.1f} GiB",
        "system": host["system"],
        "compiled for": f"{description['mcpu']} with {' '.join(description['features'])}",
        "threads": description["threads"],
        "linker": shutil.which("ld") or shutil.which("cc") or "MISSING: candidates cannot be built",
        "CUDA compilers": compilers(),
        "GPU": present_architecture() or "none; CUDA can be compiled for, but not measured",
        "device lock": lock_path("cpu"),
        **{f"peak, {threads} thread{'s'[: threads > 1]}": _peak(threads) for threads in _thread_counts(description)},
        "software": ", ".join(f"{name} {version}" for name, version in software_versions().items()),
    }
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())


def _thread_counts(description: Mapping[str, Any]) -> list[int]:
    return sorted({1, int(description["threads"])})


def _peak(threads: int) -> str:
    """Measures the peak in a process of its own, whose thread count is set before TVM starts."""
    target = get_device(describe_cpu(threads=threads))
    start = partial(_start_peak, target.description)
    with (
        Worker(start, preload=target.preload, environment=target.environment()) as worker,
        device_lock("cpu"),
    ):
        try:
            gflops: float = worker.call(timeout_s=_TIMEOUT_S)
        except (CallFailed, WorkerDied, WorkerTimeout) as error:
            raise MeasureError(f"the peak cannot be measured: {error}") from error
    return f"{gflops:.0f} GFLOP/s of float32 multiply-adds"


def _start_peak(description: Mapping[str, Any]) -> Any:
    return get_device(description).peak_gflops
