"""The resources of compiled kernels, as the CUDA assembler (ptxas) reports them; needs nvcc and no GPU."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from anole.errors import TargetError
from anole.targets.cuda.device.toolchain import find_nvcc

_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Resources:
    """The largest resource usage among the kernels of one source.

    Attributes:
        registers: the registers of one thread.
        shared_bytes: the shared memory of one block, allocated statically.
        spilled_bytes: bytes that one thread stores to memory for lack of registers.
    """

    registers: int
    shared_bytes: int
    spilled_bytes: int


def resources(source: str, arch: str) -> Resources:
    """Compiles CUDA C++ for an architecture and returns the resources of its kernels.

    Raises:
        TargetError: there is no nvcc, or it refuses the source; the message includes its output.
    """
    nvcc = find_nvcc()
    if nvcc is None:
        raise TargetError("found no nvcc, which is needed to report a kernel's resources")
    with TemporaryDirectory() as folder:
        (Path(folder) / "kernel.cu").write_text(source, encoding="utf-8")
        command = [nvcc, "-cubin", f"-arch={arch}", "-Xptxas", "-v", "-o", "kernel.cubin", "kernel.cu"]
        made = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if made.returncode:
        raise TargetError(f"nvcc refuses the source: {made.stderr.strip()[-2000:]}")
    return _parse(made.stderr)


def _parse(report: str) -> Resources:
    def number(pattern: str) -> int:
        return max((int(found) for found in re.findall(pattern, report)), default=0)

    return Resources(number(r"Used (\d+) registers"), number(r"(\d+) bytes smem"), number(r"(\d+) bytes spill stores"))
