"""Compilation and linking of an exported library, with a C compiler and binutils."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from anole.errors import ExportError, MachineError
from anole.export.folder import public_name
from anole.export.levels import Level
from anole.export.source import table_name
from anole.targets.cpu import runtime
from anole.targets.cpu.runtime import TILES_FUNCTION, compile_tiles
from anole.targets.shared.kernel import find_compiler, run_tool

_CFLAGS = ("-std=c11", "-O2", "-fPIC", "-fno-diagnostics-show-caret")
_PUBLIC_FUNCTIONS = ("create", "resize", "run", "output_shape", "destroy", "level", "error_text")
_RUNTIME_API = frozenset({"__TVMBackendParallelLaunch", "__TVMBackendAllocWorkspace", "__TVMBackendFreeWorkspace"})
"""The functions that the library provides instead of TVM's runtime."""


def write_sources(folder: Path, generated: Mapping[str, str], prefix: str) -> None:
    """Write all of the library's C sources into a folder: the common ones and the generated ones in `generated`."""
    for source in (*files("anole.export").joinpath("c").iterdir(), files(runtime.__name__).joinpath("parallel.c")):
        if source.name.endswith((".c", ".h")):
            (folder / source.name).write_text(public_name(source.read_text(encoding="utf-8"), prefix), encoding="utf-8")
    for name, text in generated.items():
        (folder / name).write_text(text, encoding="utf-8")


def link_level(folder: Path, level: Level, kernels: Path) -> Path:
    """Link an object file with the kernels of one level, which exports only their table; return its path.

    TVM wrote `kernels`, which is missing if there are none. The result is written to `folder`, next to the sources.

    Raises:
        ExportError: a kernel calls a function of TVM's runtime.
        MachineError: a tool is missing or failed.
    """
    pointers, output = folder / f"pointers-{level.identifier}.o", folder / f"level-{level.identifier}.o"
    table = table_name(level)
    _compile(folder, "level.c", pointers, [f"-DLEVEL_KERNELS={table}"])
    objects = [str(path) for path in (kernels, pointers) if path.exists()]
    run_tool("linker", [_tool("ld"), "-r", "-o", str(output), *objects])
    run_tool("objcopy", [_tool("objcopy"), f"--keep-global-symbol={table}", "--strip-debug", str(output)])
    symbols = (name for name in output.read_bytes().split(b"\0") if name.startswith(b"__TVM") and name.isascii())
    if missing := sorted({name.decode() for name in symbols} - _RUNTIME_API):
        raise ExportError(f"kernels call {', '.join(missing)} of TVM's runtime, which cannot be exported to C")
    return output


def link_library(
    folder: Path,
    levels: Sequence[Path],
    output_folder: Path,
    prefix: str,
    threads: int,
    weights: Path | None = None,
    options: Sequence[str] = (),
) -> None:
    """Link the library, shared and static, into the folder `output_folder`.

    `folder` has the sources, and `levels` are the results of `link_level`. At most `threads` threads run the network,
    including the caller's; `weights` is the file to embed in the library, if any.

    Raises:
        MachineError: a tool is missing or failed.
    """
    shared, static = output_folder / f"lib{prefix}.so", output_folder / f"lib{prefix}.a"
    macros = [f"-DANOLE_THREADS={threads}", f"-DANOLE_MOST_THREADS={threads}"]
    if weights is not None:
        macros.append(f'-DWEIGHTS_INSIDE="{weights}"')
    network, merged = folder / "network.o", folder / "merged.o"
    _compile(folder, "network.c", network, [*macros, *options])
    functions = [f"--keep-global-symbol={prefix}_{name}" for name in _PUBLIC_FUNCTIONS]
    calls_tiles = any(TILES_FUNCTION.encode() in level.read_bytes() for level in levels)
    objects = [network, *levels, *([compile_tiles(folder)] if calls_tiles else [])]
    run_tool("linker", [_tool("ld"), "-r", "-o", str(merged), *map(str, objects)])
    run_tool("objcopy", [_tool("objcopy"), *functions, str(merged)])
    run_tool("archiver", [_tool("ar"), "rcsD", str(static), str(merged)])
    flags = ["-shared", "-static-libgcc", f"-Wl,-soname,{shared.name},-z,now,-z,noexecstack,--no-undefined"]
    libraries = ["-lm", "-lpthread"]
    run_tool("linker", [find_compiler(), *flags, *options, "-o", str(shared), str(merged), *libraries])


def _compile(folder: Path, source: str, output: Path, options: Sequence[str]) -> None:
    command = [find_compiler(), *_CFLAGS, f"-I{folder}", *options, "-c", str(folder / source), "-o", str(output)]
    run_tool("C compiler", command)


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise MachineError(f"found no `{name}` on PATH; install binutils, or put it on PATH")
    return path
