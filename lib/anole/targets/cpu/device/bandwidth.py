"""Measures the memory bandwidth: the rate at which all threads copy one large array to another."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import s_tir, te, tirx

from anole.targets.cpu.device.builder import load
from anole.targets.cpu.device.vector_unit import VectorUnit

_FLOATS = 1 << 24
"""Approximate length of one array: 64 MiB, more than a processor's share of the last-level cache."""

_STREAMS = 4
"""Number of vectors that one step copies."""


class CopyKernel:
    """Copies an array on every thread; runs in the current process.

    Args:
        description: the target's description; its threads are used.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        threads, step = int(description["threads"]), _STREAMS * VectorUnit.of(description).lanes
        floats = _FLOATS // (threads * step) * (threads * step)
        self.size_bytes = 2 * 4 * floats
        self._kernel = load(_copy(floats, threads, step), description)
        arrays = (np.ones(floats, dtype=np.float32), np.empty(floats, dtype=np.float32))
        self._arguments = tuple(map(tvm.runtime.tensor, arrays))

    def bytes_per_s(self, seconds: float = 0.5) -> float:
        """Returns the best rate of many runs; each counts the array once as read and once as written."""
        # In the first run the system maps the arrays' pages, which may take longer than all other runs together.
        self._kernel(*self._arguments)
        taken_s: list[float] = []
        ends_s = time.perf_counter() + seconds
        while not taken_s or time.perf_counter() < ends_s:
            began_s = time.perf_counter()
            self._kernel(*self._arguments)
            taken_s.append(time.perf_counter() - began_s)
        return self.size_bytes / min(taken_s)


def _copy(floats: int, threads: int, step: int) -> tirx.PrimFunc:
    source = te.placeholder((floats,), "float32", name="source")
    sch = s_tir.Schedule(te.create_prim_func([source, te.compute((floats,), lambda i: source[i], name="copy")]))
    (loop,) = sch.get_loops(sch.get_sblock("copy"))
    thread, _, vector = sch.split(loop, [threads, None, step])
    sch.parallel(thread)
    sch.vectorize(vector)
    return sch.mod["main"]
