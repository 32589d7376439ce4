"""The schedule of all functions that are not tuned: TVM's own rules for GPUs (dlight)."""

from __future__ import annotations

import logging

import tvm
from tvm import tirx
from tvm.s_tir import dlight

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
    """Returns an equal function that runs on the GPU.

    Never fails: a rule that cannot schedule the function, or whose result TVM cannot lower, makes way for the next;
    without any left the function stays as it was.
    """
    for rule in _RULES:
        try:
            scheduled = _apply(rule(), func, target)
        except Exception as error:
            # Rules fail through many types, from ScheduleError to AssertionError.
            _log.debug("%s: %s: %s", rule.__name__, type(error).__name__, str(error).strip()[-200:])
            continue
        if scheduled is not None:
            return scheduled
    return func


def _apply(rule: dlight.ScheduleRule, func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """The function as one rule schedules it, or None where the rule is for others."""
    with target:
        module = dlight.ApplyDefaultSchedule(rule)(tvm.IRModule({"main": func}))
    scheduled = module["main"]
    if not scheduled.attrs or not scheduled.attrs.get("tirx.is_scheduled"):
        return None
    tvm.tirx.build(module, target)
    return scheduled
