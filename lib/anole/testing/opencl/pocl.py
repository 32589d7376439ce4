"""Launches OpenCL kernels on this processor by PoCL, which compiles whole work-groups, barriers included.

PoCL reads its settings once, when it is loaded, and a kernel that it compiles wrongly may end the process. It is
therefore loaded in a process of its own, which runs many candidates.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from anole.errors import TargetError
from anole.testing.opencl.launches import ITEM_BYTES, Launch, Launches

Array = NDArray[np.float32]

_PLATFORM = "Portable Computing Language"
_INSTALLED = Path("/etc/OpenCL/vendors/pocl.icd")
"""Names the library of a PoCL that the system has."""

_GUARD = 1024
"""Values before and after every buffer, which no kernel may write; a multiple of the alignment of sub-buffers."""

_GUARD_VALUE = np.float32(np.nan)
_NOTHING = "__kernel void nothing(__global float* out) { out[0] = 0; }"


class Method(StrEnum):
    """How PoCL turns a kernel into a function of a whole work-group, by the name that it has in PoCL.

    ``auto`` runs loops over the work-items between barriers, unless a group is tiny. ``workitemrepl`` copies the code
    for every work-item instead, so that it shares none of the code that makes those loops. PoCL 3.0 and 3.1 have no
    third one: they take any other name, such as ``cbs``, for ``auto``.
    """

    AUTO = "auto"
    REPLICATED = "workitemrepl"


@dataclass(frozen=True)
class Ran:
    """What a candidate's launches did.

    Attributes:
        output: all values of the output.
        damaged: names of the buffers that changed where nothing may be written: inputs, and before or after a buffer.
    """

    output: Array
    damaged: tuple[str, ...]


class PoclError(TargetError):
    """A candidate does not compile, its launch fails, takes too long, or ends the process; the message says which."""


class Pocl:
    """A context manager that starts a process with PoCL, runs candidates in it one by one, and ends it.

    Args:
        method: how work-groups are made.
        timeout_s: seconds that a candidate may take, compilation included.
    """

    def __init__(self, method: Method = Method.AUTO, timeout_s: float = 120.0) -> None:
        self._method, self._timeout_s = method, timeout_s
        self._context = multiprocessing.get_context("spawn")
        self.version: str
        """The version of PoCL, as it says itself."""

    def __enter__(self) -> Self:
        """Starts the process.

        Raises:
            TargetError: pyopencl or PoCL is not installed, or does not load.
        """
        if find_spec("pyopencl") is None:
            raise TargetError("found no pyopencl; install PyPI's pyopencl, and Debian's package pocl-opencl-icd")
        self._cache = TemporaryDirectory(prefix="anole-pocl-")
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._cache.cleanup()

    def run(self, launches: Launches, inputs: Mapping[str, Array]) -> Ran:
        """Runs a candidate's launches in order, from buffers of NaN, except for the inputs.

        Args:
            launches: the candidate's kernels and their launches.
            inputs: the values of the parameters that are read, by name.

        Raises:
            PoclError: see there. The next candidate is run in a new process.
        """
        try:
            with suppress(BrokenPipeError):
                self._connection.send((launches, {name: np.ravel(values) for name, values in inputs.items()}))
            found = self._receive()
        except PoclError:
            self._end()
            self._start()
            raise
        if isinstance(found, str):
            raise PoclError(found)
        assert isinstance(found, Ran)
        return found

    def _start(self) -> None:
        self._connection, theirs = self._context.Pipe()
        self._process = self._context.Process(
            target=_serve, args=(theirs, self._method.value, Path(self._cache.name)), daemon=True
        )
        self._process.start()
        theirs.close()
        loaded, said = self._receive()
        if not loaded:
            raise TargetError(said)
        self.version = said

    def _receive(self) -> Any:
        if not self._connection.poll(self._timeout_s):
            raise PoclError(f"not done within {self._timeout_s:g} s")
        try:
            return self._connection.recv()
        except (EOFError, ConnectionResetError) as error:
            self._process.join()
            raise PoclError(f"its process exited with {self._process.exitcode}") from error

    def _end(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.join()


def _serve(connection: Connection, method: str, cache: Path) -> None:
    """Loads PoCL, sends whether it loaded, and runs each candidate that is received."""
    # Standard output is the parent's, which may be a table.
    os.dup2(2, 1)
    if _INSTALLED.exists():
        # Loads no other OpenCL platform, which may be broken, and not a second PoCL with an LLVM of its own.
        os.environ["OCL_ICD_VENDORS"] = _INSTALLED.read_text(encoding="utf-8").strip()
    os.environ.update(
        POCL_WORK_GROUP_METHOD=method,
        POCL_CACHE_DIR=str(cache),
        POCL_MAX_PTHREAD_COUNT="1",
        # pyopencl has a cache of its own, in the home folder.
        PYOPENCL_NO_CACHE="1",
    )
    try:
        context = _context()
    except Exception as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        connection.send((False, f"PoCL does not run here, see Debian's package pocl-opencl-icd: {said}"))
        return
    connection.send((True, context.devices[0].platform.version))
    with suppress(EOFError, BrokenPipeError):
        while True:
            launches, inputs = connection.recv()
            try:
                ran: Ran | str = _run(context, launches, inputs)
            except Exception as error:
                ran = f"{type(error).__name__}: {str(error).strip()[:2000]}"
            connection.send(ran)


def _context() -> Any:
    """Returns a context of PoCL's processor, whatever other platforms there are, after it ran a kernel.

    An old PoCL finds a new processor and compiles nothing for it.
    """
    import pyopencl

    platforms = [platform for platform in pyopencl.get_platforms() if platform.name == _PLATFORM]
    if not platforms:
        raise TargetError("there are only other OpenCL platforms")
    context = pyopencl.Context(platforms[0].get_devices(pyopencl.device_type.CPU)[:1])
    _run(context, Launches(_NOTHING, {"out": 1}, {}, (Launch("nothing", ("out",), (1, 1, 1), (1, 1, 1)),)), {})
    return context


def _run(context: Any, launches: Launches, inputs: Mapping[str, Array]) -> Ran:
    import pyopencl

    queue = pyopencl.CommandQueue(context)
    program = pyopencl.Program(context, launches.source).build()
    kernels = {kernel.function_name: kernel for kernel in program.all_kernels()}
    before = {name: _guarded(size, inputs.get(name)) for name, size in launches.sizes.items()}
    flags = pyopencl.mem_flags.READ_WRITE | pyopencl.mem_flags.COPY_HOST_PTR
    whole = {name: pyopencl.Buffer(context, flags, hostbuf=values) for name, values in before.items()}
    buffers = {
        name: whole[name].get_sub_region(_GUARD * ITEM_BYTES, size * ITEM_BYTES)
        for name, size in launches.sizes.items()
    }
    for launch in launches.launches:
        arguments = [buffers[name] for name in launch.arguments]
        kernels[launch.kernel](queue, launch.threads, launch.block, *arguments)
    queue.finish()
    after = {name: np.empty_like(values) for name, values in before.items()}
    for name, values in after.items():
        pyopencl.enqueue_copy(queue, values, whole[name])
    return Ran(
        output=after[launches.output][_GUARD:-_GUARD].copy(),
        damaged=tuple(name for name in before if _is_damaged(before[name], after[name], name in launches.inputs)),
    )


def _guarded(size: int, values: Array | None) -> Array:
    """Returns values, or as many NaNs, between guards."""
    made = np.full(size + 2 * _GUARD, _GUARD_VALUE, dtype=np.float32)
    if values is not None:
        made[_GUARD:-_GUARD] = values
    return made


def _is_damaged(before: Array, after: Array, is_input: bool) -> bool:
    """Returns whether values changed, bit by bit, that no kernel may write."""
    kept = np.ones(len(before), dtype=bool)
    kept[_GUARD:-_GUARD] = is_input
    return bool(np.any(before.view(np.uint32)[kept] != after.view(np.uint32)[kept]))
