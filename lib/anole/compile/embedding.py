"""Puts the weights into a library through the assembler; LLVM would copy them several times."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import tvm

from anole.targets.cpu.runtime import find_compiler
from anole.targets.shared.kernel import run_tool

_SECTION = '.lrodata,"al",@progbits' if platform.machine() == "x86_64" else '.rodata,"a"'
"""Where the linker puts data that may be larger than what code can address relative to itself."""


def embed_imports(module: Any, is_system_lib: bool, prefix: str, folder: str) -> str:
    """Returns an object file with what a compiled module imports; for `tvm.runtime.Module.export_library`.

    Args:
        module: the module that is exported.
        is_system_lib: whether it is to be linked statically, which this cannot do.
        prefix: what the name of the data begins with.
        folder: where the object file is written.

    Raises:
        MachineError: there is no C compiler, or it failed.
    """
    assert not is_system_lib
    data, source, made = (Path(folder, f"{prefix}imports.{kind}") for kind in ("bin", "s", "o"))
    tvm.get_global_func("runtime.ModulePackImportsToTensor")(module).numpy().tofile(data)
    name = prefix + tvm.get_global_func("runtime.ModuleImportsBlobName")()
    # Without the last line, the linker would make the stack of the whole process executable.
    source.write_text(
        f".section {_SECTION}\n.globl {name}\n.type {name}, %object\n.size {name}, {data.stat().st_size}\n"
        f'{name}:\n.incbin "{data}"\n.section .note.GNU-stack,"",%progbits\n',
        encoding="utf-8",
    )
    run_tool("C compiler", [find_compiler(), "-c", str(source), "-o", str(made)])
    data.unlink()
    return str(made)
