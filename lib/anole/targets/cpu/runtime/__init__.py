"""The runtime of our own that every library for the CPU contains: the threads that compute parallel loops."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.resources import as_file, files
from pathlib import Path

from anole.errors import MachineError
from anole.targets.shared.kernel import run_tool

_SOURCE = files(__name__).joinpath("parallel.c")
_OPTIONS = ("-std=c11", "-O2", "-fPIC", "-fno-diagnostics-show-caret")


def compile_runtime(threads: int, folder: Path) -> Path:
    """Returns the object to link with a library whose parallel loops run on so many threads, or on all processors.

    It is written into the folder unless it is there already; MachineError says that there is no C compiler.
    """
    path = folder / f"parallel-{threads}.o"
    if path.exists():
        return path
    # Several processes may want it at once, so it appears whole.
    handle, made = tempfile.mkstemp(prefix=path.name, dir=folder)
    os.close(handle)
    try:
        with as_file(_SOURCE) as source:
            defined = f"-DANOLE_THREADS={threads}"
            run_tool("C compiler", [find_compiler(), *_OPTIONS, defined, "-c", str(source), "-o", made])
        os.replace(made, path)
    finally:
        Path(made).unlink(missing_ok=True)
    return path


def find_compiler() -> str:
    """Returns the path of the C compiler; raises MachineError if there is none."""
    for name in ("cc", "gcc", "clang"):
        if (found := shutil.which(name)) is not None:
            return found
    raise MachineError(
        "found neither `cc` nor `gcc` nor `clang` on PATH; a C compiler is needed to build anything: install one, "
        "or put it on PATH"
    )
