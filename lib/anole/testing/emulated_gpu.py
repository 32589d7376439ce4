"""Runs scheduled CUDA functions on any processor, to check without a GPU what their schedule computes.

The meaning of TensorIR does not depend on loop bindings and buffer scopes, so that a wrong index, a missing predicate
or a lost update shows. A missing synchronisation does not show; TVM inserts synchronisation itself.
"""

from __future__ import annotations

from pathlib import Path

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from anole.record import Config
from anole.targets.base import Template
from anole.targets.shared.kernel import define, link
from anole.targets.shared.reference import Example
from anole.task import Workload


def serial(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a scheduled function with all of its loops serial and all of its buffers in plain memory."""
    sch = s_tir.Schedule(tvm.IRModule({"main": func}))
    for block in _blocks(sch):
        for position, write in enumerate(sch.get(block).writes):
            if write.source.scope() != "global":
                sch.set_scope(block, position, "global")
    plain = sch.mod["main"]
    body = tvm_ffi.structural_map(plain.body, (tirx.For, _as_serial), order="post")
    return plain.with_body(body)


def emulated_error(template: Template, workload: Workload, config: Config, folder: Path) -> float:
    """Returns the relative error of a candidate against the reference, by running it serially on this processor.

    Args:
        template: the workload's template.
        workload: the candidate's workload.
        config: the candidate's config.
        folder: folder for the built library.
    """
    func = template.schedule(define(template, workload, config), workload, config)
    library = tvm.compile(tvm.IRModule({"main": serial(func)}), tvm.target.Target("llvm"))
    library.export_library(str(folder / "serial.so"), fcompile=link)
    kernel = tvm.runtime.load_module(str(folder / "serial.so"))["main"]
    example = Example.draw(workload)
    packed = template.pack_weight(workload, config, example.weight)
    out = tvm.runtime.tensor(example.unwritten())
    kernel(*map(tvm.runtime.tensor, example.arguments(packed)), out)
    return example.relative_error(out.numpy())


def _blocks(sch: s_tir.Schedule) -> list[object]:
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def _as_serial(loop: tirx.For) -> tirx.For:
    """Returns the loop, unbound; unrolling is dropped too, as it does not change the result."""
    kind = tirx.ForKind.VECTORIZED if loop.kind == tirx.ForKind.VECTORIZED else tirx.ForKind.SERIAL
    return tirx.For(loop.loop_var, loop.min, loop.extent, kind, loop.body)
