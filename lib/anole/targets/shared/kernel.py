"""A candidate as a standalone kernel with the canonical epilogue, and the tools that link libraries, for any device."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from anole.errors import MachineError
from anole.record import Config
from anole.targets.base import Template
from anole.targets.shared.packed_words import packed_dtype
from anole.targets.shared.reference import data_shape, further_shapes
from anole.task import Workload


def define(template: Template, workload: Workload, config: Config) -> tirx.PrimFunc:
    """Return the unscheduled kernel: the anchor and the canonical epilogue.

    With a constant weight, the epilogue is bias and ReLU, and the parameters are data, packed weight, bias of shape
    (out channels,) and output. Other workloads have no epilogue: what follows them in a network is a separate function.
    Their parameters are all operands and the output.
    """
    data = te.placeholder(data_shape(workload), workload.dtype, name="data")
    packed = te.placeholder(template.packed_shape(workload, config), packed_dtype(workload), name="packed")
    more = [te.placeholder(shape, workload.dtype, name="operand") for shape in further_shapes(workload)]
    anchor = template.compute(workload, config, data, packed, *more)
    if not workload.constant_weight:
        return te.create_prim_func([data, packed, *more, anchor])
    bias = te.placeholder((anchor.shape[-1],), anchor.dtype, name="bias")
    biased = te.compute(anchor.shape, lambda *at: anchor[at] + bias[at[-1]], name="add")
    zero = tirx.const(0, anchor.dtype)
    out = te.compute(anchor.shape, lambda *at: tirx.max(biased[at], zero), name="relu")
    return te.create_prim_func([data, packed, bias, out])


def link(output: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: Any) -> None:
    """Link objects into a shared library by calling the linker directly; a compiler driver takes as long as LLVM.

    Every failure is a MachineError, never the candidate's fault: a shared library may have undefined symbols.
    """
    run_tool("linker", [find_linker(), "-shared", "-o", output, *objects, *(options or ())])


def run_tool(kind: str, command: Sequence[str]) -> None:
    """Run a build tool of a kind, such as ``linker``; raise MachineError if it fails."""
    tool = f"the {kind} {command[0]}"
    try:
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    except OSError as error:
        raise MachineError(f"{tool} cannot be started: {error.strerror}; nothing can be built") from error
    if run.returncode:
        status = f"killed by {signal.Signals(-run.returncode).name}" if run.returncode < 0 else f"exit {run.returncode}"
        output = "; ".join(run.stdout.strip().splitlines()[-2:])
        raise MachineError(f"{tool} failed ({status}), so nothing can be built: {output or 'no output'}")


def find_compiler() -> str:
    """Return the path of the C compiler; raise MachineError if there is none."""
    return find_tool("C compiler", ("cc", "gcc", "clang"), "one")


def find_linker() -> str:
    """Return the path of the linker; raise MachineError if there is none."""
    return find_tool("linker", ("ld", "cc"), "binutils or a C compiler")


def find_tool(kind: str, names: Sequence[str], package: str) -> str:
    """Return the path of the first of the named tools on PATH; raise MachineError if there is none."""
    for name in names:
        if (path := shutil.which(name)) is not None:
            return path
    missing = " nor ".join(f"`{name}`" for name in names)
    raise MachineError(
        f"found neither {missing} on PATH; a {kind} is required to build anything: install {package}, or put it on PATH"
    )


link.object_format = "o"  # type: ignore[attr-defined]
