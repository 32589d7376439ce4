"""The runtime of our own that every library for the CPU contains: the threads that compute parallel loops."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from importlib.resources import as_file, files
from pathlib import Path

from anole.errors import MachineError

_SOURCE = files(__name__).joinpath("parallel.c")
_OPTIONS = ("-std=c11", "-O2", "-fPIC", "-fno-diagnostics-show-caret")


def compile_runtime(threads: int, folder: Path) -> Path:
    """Returns the object to link with a library whose parallel loops run on a number of threads.

    Args:
        threads: the most threads, with the caller; where the process may use fewer processors, there are fewer.
        folder: where the object is written, unless it is there already.

    Raises:
        MachineError: there is no C compiler, or it failed.
    """
    path = folder / f"parallel-{threads}.o"
    if path.exists():
        return path
    # Several processes may want it at once, so it appears whole.
    handle, made = tempfile.mkstemp(prefix=path.name, dir=folder)
    os.close(handle)
    try:
        with as_file(_SOURCE) as source:
            _compile([*_OPTIONS, f"-DANOLE_THREADS={threads}", "-c", str(source), "-o", made])
        os.replace(made, path)
    finally:
        Path(made).unlink(missing_ok=True)
    return path


def _compile(options: list[str]) -> None:
    compiler = find_compiler()
    try:
        done = subprocess.run([compiler, *options], capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise MachineError(
            f"the C compiler {compiler} cannot be started: {error.strerror}; nothing can be built"
        ) from error
    if done.returncode:
        said = "; ".join(done.stderr.strip().splitlines()[-2:])
        raise MachineError(
            f"the C compiler {compiler} failed (exit {done.returncode}), so nothing can be built: "
            f"{said or 'it said nothing'}"
        )


def find_compiler() -> str:
    """Returns the path of the C compiler.

    Raises:
        MachineError: there is none.
    """
    for name in ("cc", "gcc", "clang"):
        if (found := shutil.which(name)) is not None:
            return found
    raise MachineError(
        "found neither `cc` nor `gcc` nor `clang` on PATH; a C compiler is needed to build anything: install one, "
        "or put it on PATH"
    )
