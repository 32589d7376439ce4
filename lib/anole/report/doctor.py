"""The report of `anole doctor`: this machine's hardware, software, peak speed, and missing tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from anole.errors import MachineError, MeasureError
from anole.host.lock import lock_path
from anole.host.machine import host_facts, software_versions
from anole.host.process import CallError, Worker
from anole.measure.device_access import device_access
from anole.report.tables import facts_grid
from anole.targets import all_kinds, get_device, get_kind
from anole.text_format import significant

_TIMEOUT_S = 60.0


def render_machine() -> Iterator[RenderableType]:
    """Yield groups of facts for a terminal, each as soon as its peaks are measured."""
    host = host_facts()
    machine = {
        "CPU": f"{host['processor']} ({host['architecture']}, {host['cores']} cores)",
        "memory": f"{host['memory_bytes'] / 2**30:.1f} GiB",
        "system": host["system"],
        **tools(),
        "device lock": lock_path("cpu"),
    }
    yield _group("machine", machine)
    yield _group("software", software_versions())
    for kind in all_kinds():
        inventory = get_kind(kind).inventory()
        peaks = {f"peak, {device}": _peaks(description) for device, description in inventory.devices.items()}
        if facts := {**inventory.facts, **peaks}:
            yield _group(kind, facts)


def _group(title: str, facts: Mapping[str, Any]) -> RenderableType:
    return Group(Text(title, style="bold"), facts_grid((name, str(fact)) for name, fact in facts.items()))


def tools() -> dict[str, str]:
    """Return the paths of the tools that every build requires, or advice where one is missing."""
    from anole.targets.shared.kernel import find_compiler, find_linker

    def path_or_advice(find: Callable[[], str]) -> str:
        try:
            return find()
        except MachineError as error:
            return f"MISSING: {error}"

    return {"C compiler": path_or_advice(find_compiler), "linker": path_or_advice(find_linker)}


def _peaks(description: Mapping[str, Any]) -> str:
    """Measure the peaks in a separate process with the same environment as the processes that run candidates."""
    target = get_device(description)
    with device_access(target) as access, access.timing():
        environment = {**target.environment(), **access.environment()}
        with Worker(partial(_start_peaks, description), preload=target.preload, environment=environment) as worker:
            try:
                gflops: dict[str, float] = worker.call(timeout_s=_TIMEOUT_S)
            except CallError as error:
                raise MeasureError(f"the peak cannot be measured: {error}") from error
    first_peak, *other_peaks = (f"{significant(rate)} GFLOP/s of {dtype}" for dtype, rate in gflops.items())
    return "; ".join([f"{first_peak} multiply-adds", *other_peaks])


def _start_peaks(description: Mapping[str, Any]) -> Any:
    target = get_device(description)
    return lambda: {dtype: target.peak_gflops(dtype) for dtype in target.dtypes}
