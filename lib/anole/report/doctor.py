"""The report of `anole doctor`: this machine's hardware, software, peak speed, and missing tools."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from typing import Any

from anole.errors import MeasureError
from anole.host.machine import host_facts, software_versions
from anole.measure.lock import lock_path
from anole.measure.site import site_of
from anole.measure.worker import CallFailed, Worker, WorkerDied, WorkerTimeout
from anole.targets import all_kinds, get_device, get_kind

_TIMEOUT_S = 60.0


def report() -> str:
    """Returns the report as text, one fact a line."""
    host = host_facts()
    lines = {
        "processor": f"{host['processor']} ({host['architecture']}, {host['cores']} cores)",
        "memory": f"{host['memory_bytes'] / 2**30:.1f} GiB",
        "system": host["system"],
        "linker": shutil.which("ld") or shutil.which("cc") or "MISSING: candidates cannot be built",
        "device lock": lock_path("cpu"),
    }
    inventories = [get_kind(kind).inventory() for kind in all_kinds()]
    for inventory in inventories:
        lines |= inventory.facts
    for inventory in inventories:
        lines |= {f"peak, {device}": _peak(description) for device, description in inventory.devices.items()}
    lines["software"] = ", ".join(f"{name} {version}" for name, version in software_versions().items())
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())


def _peak(description: Mapping[str, Any]) -> str:
    """Measures the peak in a separate process, with the same environment as a process that runs candidates."""
    target = get_device(description)
    with site_of(target) as site, site.timing():
        environment = {**target.environment(), **site.environment()}
        with Worker(partial(_start_peak, description), preload=target.preload, environment=environment) as worker:
            try:
                gflops: float = worker.call(timeout_s=_TIMEOUT_S)
            except (CallFailed, WorkerDied, WorkerTimeout) as error:
                raise MeasureError(f"the peak cannot be measured: {error}") from error
    return f"{gflops:.0f} GFLOP/s of float32 multiply-adds"


def _start_peak(description: Mapping[str, Any]) -> Any:
    return get_device(description).peak_gflops
