"""Lists the GPUs of this machine, as nvidia-smi reports them."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass

_QUERY = ("nvidia-smi", "--query-gpu=compute_cap,index,uuid,name", "--format=csv,noheader")
_QUERY_TIMEOUT_S = 20.0
_GPU = re.compile(r"(\d+)\.(\d+), *(\d+), *([^,\s]+)(?:, *(.+))?$")


@dataclass(frozen=True)
class Gpu:
    """A GPU of this machine.

    Attributes:
        architecture: such as ``sm_90``.
        index: nvidia-smi's index, by which people and locks name the GPU.
        uuid: the identifier that selects the GPU in CUDA, which may count in another order.
        name: such as ``NVIDIA H200``; None if nvidia-smi reports none.
    """

    architecture: str
    index: int
    uuid: str
    name: str | None = None

    def __str__(self) -> str:
        return self.architecture if self.name is None else f"{self.name} ({self.architecture})"


def present_gpus() -> tuple[Gpu, ...]:
    """Returns the GPUs that this process may use, restricted by ``CUDA_VISIBLE_DEVICES`` if it is set."""
    try:
        asked = subprocess.run(_QUERY, capture_output=True, text=True, check=True, timeout=_QUERY_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = filter(None, (_GPU.match(line.strip()) for line in asked.stdout.splitlines()))
    gpus = tuple(Gpu(f"sm_{row[1]}{row[2]}", int(row[3]), row[4], row[5]) for row in rows)
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return gpus
    names = [name.strip() for name in allowed.split(",")]
    # CUDA also takes the beginning of an identifier.
    beginnings = tuple(name for name in names if name.startswith("GPU-"))
    return tuple(gpu for gpu in gpus if str(gpu.index) in names or gpu.uuid.startswith(beginnings))
