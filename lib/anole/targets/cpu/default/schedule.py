"""The default schedule of untuned functions: parallel if large, vectorized where contiguous."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx

from anole.ir.nodes import blocks_of
from anole.ir.symbols import at_sizes, prime_sizes
from anole.targets.cpu.default.loop_nests import (
    MIN_PARALLEL_WORK,
    Machine,
    block_properties,
    row_axis,
    run_in_parallel,
    schedule_row_reduction,
    schedule_spatial,
)
from anole.targets.cpu.default.memory_access import are_same, describe_block, reads_elementwise
from anole.targets.cpu.default.pad_to_vectors import pad_rows
from anole.targets.cpu.default.rows import schedule_rows
from anole.targets.cpu.default.split_reductions import separate_results
from anole.targets.cpu.device.lowering import passes

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _FunctionPair:
    """A function with dynamic sizes and its static variant, on which schedule decisions are made.

    Both are the same function if all sizes are static. `sizes` maps symbols to the variant's sizes, which are primes:
    no vector width or thread count divides them by chance.
    """

    func: tirx.PrimFunc
    static: tirx.PrimFunc
    sizes: Mapping[str, int]

    def apply_schedule(self, step: Callable[[s_tir.Schedule], None]) -> _FunctionPair:
        """Apply a step to the static variant, and replay its trace on the dynamic function."""
        schedule = s_tir.Schedule(tvm.IRModule({"main": self.static}))
        step(schedule)
        static = schedule.mod["main"]
        if self.func is self.static:
            return replace(self, func=static, static=static)
        dynamic = s_tir.Schedule(tvm.IRModule({"main": self.func}))
        schedule.trace.apply_to_schedule(dynamic, remove_postproc=False)
        return replace(self, func=dynamic.mod["main"], static=static)

    def rewrite(self, function: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> _FunctionPair:
        """Apply a function to both."""
        func = function(self.func)
        return replace(self, func=func, static=func if self.func is self.static else function(self.static))


def schedule_default(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc:
    """Return an equivalent function, parallel and vectorized where that pays.

    This never fails: if a strategy cannot schedule a function, or TVM cannot lower the result, a simpler strategy is
    tried; the last resort is the unscheduled function.
    """
    sizes = prime_sizes(func)
    static = at_sizes(func, sizes)
    return _schedule(_FunctionPair(func, static, sizes), replace(machine, varies=static is not func))


def _schedule(pair: _FunctionPair, machine: Machine) -> tirx.PrimFunc:
    for strategy in (_schedule_rows, _schedule_padded_rows, _schedule_blocks, _schedule_outer_loops):
        try:
            scheduled = strategy(pair.rewrite(separate_results), machine).func
            _lower(scheduled)
        except Exception as error:
            # TVM fails with many exception types, from ScheduleError to InternalError.
            _log.debug("%s: %s: %s", strategy.__name__, type(error).__name__, str(error).strip()[-200:])
            continue
        return scheduled
    return pair.func


def _lower(func: tirx.PrimFunc) -> None:
    target = tvm.target.Target({"kind": "llvm"})
    lower, *_ = passes()
    with target:
        module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        lower(tirx.transform.BindTarget(target.with_host(target))(module))


def _schedule_rows(pair: _FunctionPair, machine: Machine) -> _FunctionPair:
    def step(schedule: s_tir.Schedule) -> None:
        _inline_cheap(schedule)
        schedule_rows(schedule, blocks_of(schedule), machine)

    return pair.apply_schedule(step)


def _schedule_padded_rows(pair: _FunctionPair, machine: Machine) -> _FunctionPair:
    pair = pair.apply_schedule(_inline_cheap)
    schedule = s_tir.Schedule(pair.static)
    lanes = machine.lanes(*(block_properties(schedule, rv) for rv in blocks_of(schedule)))
    padded = pair.rewrite(lambda func: pad_rows(func, lanes, pair.sizes))
    return padded.apply_schedule(lambda schedule: schedule_rows(schedule, blocks_of(schedule), machine))


def _schedule_blocks(pair: _FunctionPair, machine: Machine) -> _FunctionPair:
    return pair.apply_schedule(lambda schedule: _schedule_each_block(schedule, machine))


def _schedule_each_block(schedule: s_tir.Schedule, machine: Machine) -> None:
    _inline_cheap(schedule)
    scheduled_names: set[str] = set()
    for name, rv in reversed([(_name(schedule, rv), rv) for rv in blocks_of(schedule)]):
        if name in scheduled_names:
            continue
        block = describe_block(schedule.get(rv))
        if block is None or len(block.axes) != len(schedule.get_loops(rv)):
            _schedule_spatial_loops(schedule, rv, machine)
        elif not block.reduces:
            producers = _feeding_reductions(schedule, rv)
            scheduled_names.update(_name(schedule, producer) for producer in producers)
            schedule_spatial(schedule, rv, producers, machine)
        elif row_axis(block.axes) is not None:
            schedule_row_reduction(schedule, rv, machine)
        elif all(axis.reduction for axis in block.axes):
            continue
        else:
            schedule_spatial(schedule, schedule.cache_write(rv, 0, "global"), [rv], machine)


def _schedule_outer_loops(pair: _FunctionPair, machine: Machine) -> _FunctionPair:
    def step(schedule: s_tir.Schedule) -> None:
        for rv in blocks_of(schedule):
            _schedule_spatial_loops(schedule, rv, machine)

    return pair.apply_schedule(step)


def _schedule_spatial_loops(schedule: s_tir.Schedule, rv: Any, machine: Machine) -> None:
    """Run the leading spatial loops of a block in parallel if there is enough work."""
    iter_vars, loops = schedule.get(rv).iter_vars, schedule.get_loops(rv)
    if len(iter_vars) != len(loops):
        return
    leading = takewhile(lambda iter_var: iter_var.iter_type == tirx.IterVar.DataPar, iter_vars)
    spatial = loops[: len(list(leading))]
    if spatial and prod(int(schedule.get(loop).extent) for loop in loops) >= MIN_PARALLEL_WORK:
        run_in_parallel(schedule, spatial, machine)


def _inline_cheap(schedule: s_tir.Schedule) -> None:
    """Inline every spatial block that has consumers, unless its values are both expensive and used repeatedly."""
    for rv in blocks_of(schedule):
        block = describe_block(schedule.get(rv))
        consumers = schedule.get_consumers(rv)
        if block is None or block.reduces or not consumers:
            continue
        readers = [describe_block(schedule.get(consumer)) for consumer in consumers]
        is_reused = len(readers) > 1 or any(reader is None or reader.reduces for reader in readers)
        if not (block.expensive and is_reused):
            try:
                schedule.compute_inline(rv)
            except s_tir.ScheduleError:
                _log.debug("%s cannot be inlined", _name(schedule, rv))


def _feeding_reductions(schedule: s_tir.Schedule, rv: Any) -> list[Any]:
    """Return the non-contiguous reductions whose results only this spatial block reads, element by element."""
    reductions = []
    for producer in schedule.get_producers(rv):
        block, source = describe_block(schedule.get(producer)), schedule.get(producer)
        if block is None or not block.reduces or row_axis(block.axes) is not None:
            continue
        spatial = [axis.var for axis in source.iter_vars if axis.iter_type == tirx.IterVar.DataPar]
        has_one_reader = len(schedule.get_consumers(producer)) == 1 and are_same(source.body.indices, spatial)
        if has_one_reader and reads_elementwise(schedule.get(rv), source.body.buffer):
            reductions.append(producer)
    return reductions


def _name(schedule: s_tir.Schedule, rv: Any) -> str:
    return str(schedule.get(rv).name_hint)
