"""The runtime of our own that every library for the CPU contains: the threads that compute parallel loops."""

from __future__ import annotations

import os
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory

from anole.targets.shared.kernel import find_tool, run_tool

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
    with TemporaryDirectory(dir=folder) as made, as_file(_SOURCE) as source:
        whole, defined = f"{made}/{path.name}", f"-DANOLE_THREADS={threads}"
        run_tool("C compiler", [find_compiler(), *_OPTIONS, defined, "-c", str(source), "-o", whole])
        os.replace(whole, path)
    return path


def find_compiler() -> str:
    """Returns the path of the C compiler; raises MachineError if there is none."""
    return find_tool("C compiler", ("cc", "gcc", "clang"), "one")
