"""Anole's runtime in libraries for the CPU: threads for parallel loops, and AMX tile products."""

from __future__ import annotations

import os
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory

from anole.errors import MachineError
from anole.targets.shared.kernel import find_compiler, run_tool

TILES_FUNCTION = "multiply_tiles"
"""The C function that multiplies tiles."""

_OPTIONS = ("-std=c11", "-O2", "-fPIC", "-fno-diagnostics-show-caret")


def compile_runtime(threads: int, folder: Path) -> Path:
    """Compile the object to link with a library whose parallel loops run on `threads` threads, if it does not exist.

    With 0, the loops run on all logical CPUs. It raises MachineError if there is no C compiler.
    """
    return _compile(folder / f"parallel-{threads}.o", "parallel.c", f"-DANOLE_THREADS={threads}")


def compile_tiles(folder: Path) -> Path:
    """Compile the object to link with a library that multiplies tiles, if it does not exist.

    If the compiler does not know the AMX instructions, the library never uses them.
    """
    path = folder / "tiles.o"
    try:
        return _compile(path, "tiles.c", "-DWITH_AMX")
    except MachineError:
        return _compile(path, "tiles.c")


def _compile(path: Path, name: str, *options: str) -> Path:
    """Compile a source file of this folder to an object, if the object does not exist."""
    if path.exists():
        return path
    # Several processes may compile the object in parallel, so it is moved into place atomically.
    with TemporaryDirectory(dir=path.parent) as temporary, as_file(files(__name__).joinpath(name)) as source:
        complete_path = f"{temporary}/{path.name}"
        run_tool("C compiler", [find_compiler(), *_OPTIONS, *options, "-c", str(source), "-o", complete_path])
        os.replace(complete_path, path)
    return path
