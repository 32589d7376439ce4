"""What this machine is: the cores a process may use, its description as a target, facts for records."""

from __future__ import annotations

import math
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from anole.errors import TargetError
from anole.host.processor import features_of, processor

_SOFTWARE = ("anole", "apache-tvm", "numpy", "onnxruntime", "torch", "xgboost")


def available_cores() -> int:
    """Returns how many physical cores this process may use, by its affinity and its quota.

    Two hyper-threads of a core count once: a second one on a core with busy vector units only slows both.
    """
    cores = {_core_of(cpu) for cpu in _affinity()}
    quota = _cgroup_quota(Path("/sys/fs/cgroup"))
    return max(1, len(cores) if quota is None else min(len(cores), math.floor(quota)))


def describe_cpu(mcpu: str | None = None, threads: int | None = None) -> dict[str, Any]:
    """Returns the whole description of this machine's processor as a target, which enters the keys of tasks.

    Args:
        mcpu: LLVM's name of the processor to compile for; detected when None.
        threads: how many run a kernel; all available cores when None.

    Raises:
        TargetError: this machine cannot do what is asked.
    """
    host = processor()
    if mcpu is not None and (lacking := host.lacks(mcpu)):
        raise TargetError(f"mcpu {mcpu} needs {', '.join(lacking)}, which this machine's {host.name} has not")
    if threads is not None and threads > len(_affinity()):
        raise TargetError(f"found threads: {threads}; this process may use {len(_affinity())} processors")
    return {
        "kind": "cpu",
        "mcpu": mcpu or host.mcpu,
        "model": host.name,
        "features": host.features,
        "threads": threads or available_cores(),
    }


def describe_remote_cpu(model: str, mcpu: str, threads: int) -> dict[str, Any]:
    """Returns the whole description of another machine's processor as a target, of which nothing is detected.

    Args:
        model: what it is called, in the place of its name.
        mcpu: LLVM's name of it.
        threads: how many run a kernel.
    """
    return {"kind": "cpu", "mcpu": mcpu, "model": model, "features": features_of(mcpu), "threads": threads}


def host_facts() -> dict[str, Any]:
    """Returns what a record says of the machine it was made on; not part of any key."""
    return {
        "name": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "processor": processor().name,
        "cores": available_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def software_versions() -> dict[str, str]:
    """Returns the versions of what decides how fast a kernel gets, of those packages that are installed."""
    installed = {dist.name: dist.version for name in _SOFTWARE for dist in metadata.Distribution.discover(name=name)}
    return {"python": platform.python_version(), **installed}


def _affinity() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _core_of(cpu: int) -> str:
    siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return siblings.read_text(encoding="utf-8").strip() if siblings.exists() else str(cpu)


def _cgroup_quota(root: Path) -> float | None:
    """Returns the cores that the control group (version 2, else 1) grants, or None without a limit."""
    try:
        quota, period = (root / "cpu.max").read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        try:
            quota, period = ((root / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        except OSError:
            return None
    return None if quota.strip() in ("max", "-1") else int(quota) / int(period)
