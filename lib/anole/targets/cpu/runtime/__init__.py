"""The runtime of our own that libraries for the CPU contain: threads for parallel loops, and products of tiles."""

from __future__ import annotations

import os
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory

from anole.errors import MachineError
from anole.targets.shared.kernel import find_compiler, run_tool

TILES_FUNCTION = "multiply_tiles"
"""What a kernel that multiplies tiles calls."""

_OPTIONS = ("-std=c11", "-O2", "-fPIC", "-fno-diagnostics-show-caret")


def compile_runtime(threads: int, folder: Path) -> Path:
    """Return the object to link with a library whose parallel loops run on so many threads, or on all processors.

    It is written into the folder unless it is there already; MachineError says that there is no C compiler.
    """
    return _compiled(folder / f"parallel-{threads}.o", "parallel.c", f"-DANOLE_THREADS={threads}")


def compile_tiles(folder: Path) -> Path:
    """Return the object to link with a library that multiplies tiles, likewise.

    A compiler that does not know the instructions leaves them out, so that the library never uses them.
    """
    path = folder / "tiles.o"
    try:
        return _compiled(path, "tiles.c", "-DWITH_AMX")
    except MachineError:
        return _compiled(path, "tiles.c")


def _compiled(path: Path, name: str, *options: str) -> Path:
    """Compile a source file of this folder to an object, unless that is there."""
    if path.exists():
        return path
    # Several processes may want it at once, so it appears whole.
    with TemporaryDirectory(dir=path.parent) as made, as_file(files(__name__).joinpath(name)) as source:
        whole = f"{made}/{path.name}"
        run_tool("C compiler", [find_compiler(), *_OPTIONS, *options, "-c", str(source), "-o", whole])
        os.replace(whole, path)
    return path
