"""Interprets OpenCL kernels work-item by work-item with Oclgrind, which reports races and invalid accesses.

Oclgrind executes LLVM's code of a kernel and watches every access to memory. One launch costs seconds for some ten
thousand multiply-adds, so that only small layers can be checked.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from anole.errors import TargetError
from anole.testing.opencl.launches import ITEM_BYTES, Launch, Launches

Array = NDArray[np.float32]

_TOOL = "oclgrind-kernel"
_OPTIONS = (
    "--data-races",
    # Also where all threads write the same value.
    "--uniform-writes",
    "--uninitialized",
    "--num-threads=1",
    "--local-mem-size=65536",
    # Otherwise a load is hoisted out of its guard, and reported as invalid.
    "--build-options=-cl-opt-disable",
)
_KINDS = {
    "races": re.compile(r"(Read-write|Write-write) data race"),
    "invalid_accesses": re.compile(r"Invalid (memory|read|write)|Index \(\d+\) exceeds|Pointer"),
    "divergences": re.compile(r"Work-group divergence"),
    "uninitialised": re.compile(r"Uninitialized|Controlflow depends on uninitialized"),
}
_DUMPED = re.compile(r"  (\w+)_ptr\[\d+\] = (\d+)")

_ALIGNED = "".join(
    f"""
float{n} __attribute__((overloadable)) load{n}(const __private float* from) {{ return vload{n}(0, from); }}
float{n} __attribute__((overloadable)) load{n}(const __global float* from) {{ return *(const __global float{n}*)from; }}
float{n} __attribute__((overloadable)) load{n}(const __local float* from) {{ return *(const __local float{n}*)from; }}
void __attribute__((overloadable)) store{n}(float{n} value, __private float* to) {{ vstore{n}(value, 0, to); }}
void __attribute__((overloadable)) store{n}(float{n} value, __global float* to) {{ *(__global float{n}*)to = value; }}
void __attribute__((overloadable)) store{n}(float{n} value, __local float* to) {{ *(__local float{n}*)to = value; }}
#define vload{n}(offset, from) load{n}((from) + {n} * (offset))
#define vstore{n}(value, offset, to) store{n}((value), (to) + {n} * (offset))
"""
    for n in (2, 4)
)
"""Vector accesses as in CUDA, where their addresses must be aligned; OpenCL's own take any address."""


@dataclass(frozen=True)
class Report:
    """What the launches of one candidate did.

    Attributes:
        output: all values of the output.
        races: reported pairs of accesses, one of them a write, that nothing orders.
        invalid_accesses: reported accesses outside a buffer, or not aligned to their own size.
        divergences: barriers that only some threads of a block reached.
        uninitialised: uses of values that were never written.
        first: the first message of each of these kinds.
    """

    output: Array
    races: int
    invalid_accesses: int
    divergences: int
    uninitialised: int
    first: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing was reported."""
        return not (self.races or self.invalid_accesses or self.divergences or self.uninitialised)


class OclgrindError(TargetError):
    """Oclgrind does not compile or finish a kernel, or says something unknown; the message says which."""


@cache
def absence() -> str | None:
    """Returns why nothing can be checked here, or None."""
    if shutil.which(_TOOL) is None:
        return f"found no {_TOOL} on PATH; install Debian's package oclgrind"
    return None


def check(launches: Launches, inputs: Mapping[str, Array], timeout_s: float = 300.0) -> Report:
    """Interprets a candidate's launches in order, from buffers of NaN, except for the inputs.

    Args:
        launches: the candidate's kernels and their launches.
        inputs: the values of the parameters that are read, by name.
        timeout_s: seconds that one launch may take.

    Raises:
        TargetError: Oclgrind is not installed.
        OclgrindError: see there.
    """
    if (reason := absence()) is not None:
        raise TargetError(reason)
    values = {name: np.full(size, np.nan, dtype=np.float32) for name, size in launches.sizes.items()}
    values |= {name: np.ravel(given) for name, given in inputs.items()}
    messages: list[str] = []
    with TemporaryDirectory(prefix="anole-oclgrind-") as made:
        folder = Path(made)
        (folder / "kernels.cl").write_text(f"{_ALIGNED}#line 1\n{launches.source}", encoding="utf-8")
        for launch in launches.launches:
            described = "".join(f"{line}\n" for line in _described(launch, values))
            (folder / "launch.sim").write_text(described, encoding="utf-8")
            printed, said = _interpreted(folder, timeout_s)
            messages += said
            values |= _dumped(printed, values)
    return _report(values[launches.output], messages)


def _described(launch: Launch, values: Mapping[str, Array]) -> Iterator[str]:
    """Yields the lines of a launch's description; values are given bit by bit."""
    yield "kernels.cl"
    yield launch.kernel
    yield " ".join(map(str, launch.threads))
    yield " ".join(map(str, launch.block))
    for name in launch.arguments:
        yield f"<size={ITEM_BYTES * len(values[name])} uint dump>"
        yield " ".join(map(str, values[name].view(np.uint32).tolist()))


def _interpreted(folder: Path, timeout_s: float) -> tuple[str, list[str]]:
    """Runs the launch that a folder describes; returns what was dumped, and the messages."""
    try:
        ran = subprocess.run(
            [_TOOL, *(part for option in _OPTIONS for part in option.split("=", 1)), "launch.sim"],
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise OclgrindError(f"not done within {timeout_s:g} s") from error
    if ran.returncode:
        raise OclgrindError(f"exit {ran.returncode}: {ran.stderr.strip()[:2000]}")
    return ran.stdout, _messages(ran.stderr)


def _messages(text: str) -> list[str]:
    """Returns the messages, each of which begins at the margin after an empty line."""
    parts = [part.strip() for part in text.split("\n\n")]
    return [part for part in parts if part and not part.startswith("Oclgrind:") and not _is_summary(part)]


def _is_summary(part: str) -> bool:
    return re.fullmatch(r"\d+ (errors?|warnings?)( and \d+ \w+)? generated\.", part) is not None


def _dumped(printed: str, values: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the values of all buffers of a launch after it."""
    dumped: dict[str, list[int]] = {}
    for name, bits in _DUMPED.findall(printed):
        dumped.setdefault(name, []).append(int(bits))
    made = {name: np.array(bits, dtype=np.uint32).view(np.float32) for name, bits in dumped.items()}
    if not made or any(made[name].shape != values[name].shape for name in made):
        raise OclgrindError(f"dumped {', '.join(made) or 'nothing'}, and not the whole buffers of the launch")
    return made


def _report(output: Array, messages: Sequence[str]) -> Report:
    counts = dict.fromkeys(_KINDS, 0)
    first: dict[str, str] = {}
    for message in messages:
        kind = next((kind for kind, pattern in _KINDS.items() if pattern.match(message)), None)
        if kind is None:
            raise OclgrindError(f"said something unknown: {message[:500]}")
        counts[kind] += 1
        first.setdefault(kind, message)
    return Report(output, **counts, first=tuple(first.values()))
