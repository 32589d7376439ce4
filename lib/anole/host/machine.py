"""The cores that this process may use, and the hardware and software facts that are stored with records."""

from __future__ import annotations

import math
import os
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from anole.errors import MachineError
from anole.host.processor import processor

_SOFTWARE = ("anole", "apache-tvm", "numpy", "onnxruntime", "torch", "xgboost")


def available_cores() -> int:
    """Return the number of physical cores that this process may use, given its affinity and its cgroup quota.

    Two hyper-threads of a core count once, because a second thread on a core with busy vector units slows down both.
    For tests, the environment variable ``ANOLE_CORES`` overrides the number.
    """
    if (override := _cores_override()) is not None:
        return override
    cores = {_core_of(cpu) for cpu in affinity()}
    quota = _cgroup_quota(Path("/sys/fs/cgroup"))
    return max(1, len(cores) if quota is None else min(len(cores), math.floor(quota)))


def available_threads() -> int:
    """Return the number of logical processors that this process may use."""
    return _cores_override() or len(affinity())


def affinity() -> set[int]:
    """Return the ids of the logical processors that any thread of this process may use.

    The calling thread alone does not count, because a library such as TVM's thread pool may have bound it.
    """
    cpus: set[int] = set()
    for thread in map(int, os.listdir("/proc/self/task")):
        with suppress(ProcessLookupError):  # the thread has ended
            cpus |= os.sched_getaffinity(thread)
    return cpus


def host_facts() -> dict[str, Any]:
    """Return the facts about this machine that are stored with records; they are not part of any key."""
    return {
        "name": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "processor": processor().name,
        "cores": available_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def software_versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that affect the speed of kernels."""
    installed = {dist.name: dist.version for name in _SOFTWARE for dist in metadata.Distribution.discover(name=name)}
    return {"python": platform.python_version(), **installed}


def _cores_override() -> int | None:
    text = os.environ.get("ANOLE_CORES", "")
    if text and not (text.isdecimal() and int(text)):
        raise MachineError(f"ANOLE_CORES: found {text!r}; it must be a positive integer")
    return int(text) if text else None


def _core_of(cpu: int) -> str:
    siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return siblings.read_text(encoding="utf-8").strip() if siblings.exists() else str(cpu)


def _cgroup_quota(root: Path) -> float | None:
    """Return the CPU quota of the control group (version 2, else 1) in cores; None if there is no limit."""
    try:
        quota, period = (root / "cpu.max").read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        try:
            quota, period = ((root / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        except OSError:
            return None
    return None if quota.strip() in ("max", "-1") else int(quota) / int(period)
