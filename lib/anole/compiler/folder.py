"""The folder of a build: the shared library, its description, and code that loads it."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import tvm

from anole.documents.build import Build, TensorInfo, write_build
from anole.errors import BuildError, MachineError
from anole.files import make_folder, replace_durably
from anole.host.tempdirs import make_locked_folder, sweep
from anole.targets.base import CppRuntime
from anole.targets.shared.kernel import find_compiler, run_tool

_SNIPPETS = files("anole.compiler").joinpath("snippets")
_HOST = "kDLCPU"
_DTYPE_CODES = {"float": "kDLFloat", "int": "kDLInt", "uint": "kDLUInt", "bool": "kDLBool"}

_SECTION = '.lrodata,"al",@progbits' if platform.machine() == "x86_64" else '.rodata,"a"'
"""The section for data that may be out of reach of code-relative addresses."""


def write_library(path: Path, executable: Any, objects: Sequence[Path] = ()) -> None:
    """Write compiled functions as a shared library, linked with other objects.

    Raises:
        BuildError: the library cannot be linked.
        MachineError: there is no C compiler, or it failed.
    """
    try:
        executable.export_library(str(path), addons=[str(object_) for object_ in objects], fpack_imports=embed_imports)
    except MachineError:
        raise
    except Exception as error:
        # `replace_folder` reports a full disk; a missing file is the compiler.
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise
        raise BuildError(f"cannot link {path.name}; a C++ compiler is required: {error}") from error


def write_description(folder: Path, build: Build, cpp_runtime: CppRuntime | None = None) -> None:
    """Write ``build.json`` and, for a library that TVM's runtime loads, example code that loads it."""
    write_build(folder, build)
    if cpp_runtime is not None:
        (folder / "load.py").write_text(_SNIPPETS.joinpath("load.py.in").read_text(encoding="utf-8"), encoding="utf-8")
        (folder / "load.cc").write_text(_cpp_loader(build, cpp_runtime), encoding="utf-8")


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces the given one on success and is removed on failure.

    Leftovers of killed processes in the same parent folder are removed first.

    Raises:
        BuildError: the folder cannot be written.
    """
    prefix = f".{folder.name}."
    try:
        make_folder(folder.parent)
        sweep(folder.parent, prefix)
        scratch, lock = make_locked_folder(folder.parent, prefix)
    except OSError as error:
        raise BuildError(f"{folder}: cannot be written: {error}") from error
    try:
        new = scratch / "new"
        new.mkdir()
        new.chmod(0o755)
        yield new
        # The folder is replaced atomically: readers never see an incomplete one.
        if folder.exists():
            os.replace(folder, scratch / "old")
        replace_durably(new, folder)
    except OSError as error:
        raise BuildError(f"{folder}: cannot be written: {error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        os.close(lock)


def _cpp_loader(build: Build, runtime: CppRuntime) -> str:
    first = "outputs.cast<ffi::Tensor>()" if len(build.outputs) == 1 else "outputs.cast<ffi::Array<ffi::Tensor>>()[0]"
    # The virtual machine expects the kind, number and allocator of each device.
    kinds = dict.fromkeys((runtime.device, _HOST))
    return Template(_SNIPPETS.joinpath("load.cc.in").read_text(encoding="utf-8")).substitute(
        device=runtime.device,
        devices=", ".join(f"static_cast<int>({kind}), 0, /*pooled allocator=*/2" for kind in kinds),
        libraries=" ".join(f"-l{name}" for name in runtime.libraries),
        inputs=", ".join(map(_input_call, build.inputs)),
        first=first,
        name=build.outputs[0].name,
    )


def _input_call(info: TensorInfo) -> str:
    """Return a C++ call that creates an input with this shape and DLPack dtype (code, bits and lanes)."""
    kind, shape = info.dtype.rstrip("0123456789"), ", ".join(map(str, info.shape))
    return f"input({{{shape}}}, {{{_DTYPE_CODES[kind]}, {info.dtype.removeprefix(kind) or 8}, 1}})"


def embed_imports(module: Any, is_system_lib: bool, prefix: str, folder: str) -> str:
    """Write an object file that embeds the imports of a compiled module; for `tvm.runtime.Module.export_library`.

    It cannot be linked statically. The name of its symbol begins with `prefix`.

    Raises:
        MachineError: there is no C compiler, or it failed.
    """
    assert not is_system_lib
    data, source, object_file = (Path(folder, f"{prefix}imports.{kind}") for kind in ("bin", "s", "o"))
    # TVM's own `numpy` method would copy all weights again.
    np.from_dlpack(tvm.get_global_func("runtime.ModulePackImportsToTensor")(module)).tofile(data)
    name = prefix + tvm.get_global_func("runtime.ModuleImportsBlobName")()
    # Without the last line, the linker would make the process stack executable.
    source.write_text(
        f".section {_SECTION}\n.globl {name}\n.type {name}, %object\n.size {name}, {data.stat().st_size}\n"
        f'{name}:\n.incbin "{data}"\n.section .note.GNU-stack,"",%progbits\n',
        encoding="utf-8",
    )
    run_tool("C compiler", [find_compiler(), "-c", str(source), "-o", str(object_file)])
    data.unlink()
    return str(object_file)
