"""The default schedule of untuned functions by TVM's own rules for GPUs (dlight)."""

from __future__ import annotations

import logging

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import dlight

from anole.ir.nodes import blocks_of
from anole_cuda.device.builder import skip_compilation

_log = logging.getLogger(__name__)

_RULES = (
    dlight.gpu.Matmul,
    dlight.gpu.GEMV,
    dlight.gpu.Reduction,
    dlight.gpu.GeneralReduction,
    dlight.gpu.Transpose,
    dlight.gpu.Fallback,
)


def schedule_default(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    """Return an equivalent function that runs on the GPU.

    This never fails: if a rule cannot schedule the function, or TVM cannot build its result, the next rule is tried. If
    no rule is left, the function stays unscheduled, runs on the host, and a warning is logged.
    """
    for rule in _RULES:
        try:
            scheduled = _apply(rule(), func, target)
        except Exception as error:
            # Rules fail with many exception types, from ScheduleError to AssertionError.
            _log.debug("%s: %s: %s", rule.__name__, type(error).__name__, str(error).strip()[-200:])
            continue
        if scheduled is not None:
            return scheduled
    sch = s_tir.Schedule(func)
    names = ", ".join(str(sch.get(block).name_hint) for block in blocks_of(sch))
    _log.warning("no rule can schedule a function for the GPU, so it runs on the host: %s", names)
    return func


def _apply(rule: dlight.ScheduleRule, func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """Schedule the function by one rule; return None if the rule does not apply to all of its blocks."""
    with target:
        # A block that is inlined twice defines its variables twice.
        module = s_tir.transform.ConvertSSA()(dlight.ApplyDefaultSchedule(rule)(tvm.IRModule({"main": func})))
        scheduled = module["main"]
    if not scheduled.attrs.get("tirx.is_scheduled") or not _is_on_gpu(scheduled):
        return None
    with skip_compilation():
        tvm.tirx.build(scheduled.with_attr("global_symbol", "main"), target)
    return scheduled


def _is_on_gpu(func: tirx.PrimFunc) -> bool:
    """Whether GPU threads run every block; a block that a rule ignores, such as a second result, runs on the host."""
    sch = s_tir.Schedule(func)
    nests = [[sch.get(loop) for loop in sch.get_loops(block)] for block in blocks_of(sch)]
    return all(any(loop.kind == tirx.ForKind.THREAD_BINDING for loop in nest) for nest in nests)
