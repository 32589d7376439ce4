"""The time loop of a recurrent layer as one GPU kernel: one thread block per direction and row of the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from anole.errors import TargetError
from anole.ir.polynomials import Value
from anole.targets.shared.recurrence import LANES, Recurrence
from anole.targets.shared.recurrent_kernel import recurrent_function
from anole.targets.shared.recurrent_step import Arguments, RecurrentStep, Sums, UnitPosition, allocate, run_if

_MAX_THREADS = 1024
"""Maximum number of threads of a block on any GPU."""

_MAX_HIDDEN = 3072
"""Maximum number of hidden units: at most four floats each must fit every GPU's 48 KiB of shared memory."""


def schedule_recurrence(recurrence: Recurrence) -> tirx.PrimFunc:
    """Return the kernel of a recurrent layer for a GPU.

    Raises:
        TargetError: the layer is quantized, or too large.
    """
    if recurrence.quantized:
        raise TargetError("cuda: a recurrent layer with a quantized state runs only on cpu")
    if recurrence.padded > _MAX_HIDDEN:
        raise TargetError(
            f"cuda: found a recurrent layer with {recurrence.hidden} hidden units; at most {_MAX_HIDDEN} are supported"
        )
    with recurrent_function(recurrence) as (builder, arguments):
        _Kernel(recurrence, arguments).write()
    return builder.get()


class _Kernel(RecurrentStep):
    """A kernel with states in shared memory; TVM synchronizes threads between the loops over hidden units."""

    def __init__(self, recurrence: Recurrence, arguments: Arguments) -> None:
        super().__init__(recurrence, arguments)
        self._allocate((recurrence.padded,), scope="shared")
        blocks = max(n for n in range(1, _MAX_THREADS // LANES + 1) if recurrence.blocks % n == 0)
        self._threads = blocks * LANES

    def write(self) -> None:
        """Emit the entire kernel."""
        layer = self._layer
        with T.thread_binding(0, layer.directions * self._batch, thread="blockIdx.x") as index:
            direction, row = index // self._batch, index % self._batch
            self._for_each_unit(lambda unit: self.begin((direction, row, unit)))
            with T.serial(0, self._steps) as step:
                for part in self.parts():
                    self._for_each_unit(partial(part, step, direction, row))
            self._for_each_unit(lambda unit: self._end((direction, row, unit)))

    def _end(self, position: UnitPosition) -> None:
        with run_if(position[-1] < self._layer.hidden):
            self.end(position)

    def _for_each_unit(self, emit: Callable[[Value], None]) -> None:
        """Emit statements for all hidden units, divided among the threads."""
        chunks = self._layer.padded // self._threads
        with T.serial(0, chunks) as chunk, T.thread_binding(0, self._threads, thread="threadIdx.x") as thread:
            emit(chunk * self._threads + thread)

    @contextmanager
    def _tile(
        self, direction: Value, first_row: Value, group: Value, has_lanes: bool = True
    ) -> Iterator[tuple[UnitPosition, Sums]]:
        yield (direction, first_row, group), lambda gate: (gate,)

    def _allocated_sums(self) -> Any:
        return allocate(self._layer.gates, scope="local")

    def _slot(self, position: UnitPosition) -> tuple[Value, ...]:
        return (position[-1],)
