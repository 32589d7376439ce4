"""Counts the memory that kernels allocate while they run, so that the arena has room for it."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import ir, tirx
from tvm.ir.instrument import pass_instrument

from anole.export.arena import rounded
from anole.targets.shared.nodes import collect

_ALLOCATING = "TVMBackendAllocWorkspace"
_LOWERING = "tirx.LowerTVMBuiltin"


@pass_instrument
class Workspaces:
    """Observes a compilation of kernels.

    Attributes:
        serial_bytes: the most that one kernel allocates outside its parallel loops.
        chunk_bytes: the most that one chunk of a parallel loop allocates.
    """

    serial_bytes = 0
    chunk_bytes = 0

    def run_after_pass(self, module: tvm.IRModule, info: Any) -> None:
        """Counts after the pass that makes the calls; TVM calls it after every pass."""
        if info.name != _LOWERING:
            return
        for _, function in module.functions_items():
            if isinstance(function, tirx.PrimFunc):
                inner = [_allocated(loop.body) for loop in collect(function.body, tirx.For) if _is_parallel(loop)]
                self.chunk_bytes = max(self.chunk_bytes, *inner, 0)
                self.serial_bytes = max(self.serial_bytes, _allocated(function.body) - sum(inner))


def _allocated(root: Any) -> int:
    """Returns the bytes of all allocations in a statement: at least what is allocated at once."""
    calls = [call for call in collect(root, ir.Call) if _ALLOCATING in getattr(call.op, "name", "")]
    return sum(rounded(int(call.args[2])) for call in calls)


def _is_parallel(loop: tirx.For) -> bool:
    return bool(loop.kind == tirx.ForKind.PARALLEL)
