"""The time loop of a recurrent layer as one kernel for processors.

Directions and rows of the batch do not depend on each other: if there are enough of them, each thread takes some
through all steps. Otherwise all threads share the hidden units of a step, and wait for each other after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from anole.targets.shared.polynomials import Value
from anole.targets.shared.recurrence import LANES, RECURRENCE, Parameter, Recurrence
from anole.targets.shared.recurrent_cell import HIDDEN, RESET, UPDATE, CellEquations

OPAQUE = 8
"""TVM's operator pattern for a function that nothing fuses with."""

_LEVELS = 255
"""Steps between the least and the greatest value of a state that is quantised to 8 bits."""

Place = tuple[Value, Value, Value]
"""A direction, a row of the batch and a hidden unit."""

Gate = Callable[[int], Value]


@dataclass(frozen=True)
class Tiling:
    """How a kernel is divided.

    Attributes:
        rows: rows of the batch that are computed together; they divide the batch.
        blocks: blocks of hidden units whose sums are in registers together; they divide all blocks.
        strands: parts of the batch that go through all steps on their own; they divide the batch's tiles of rows.
            A state is quantised for the whole batch, which then is one part.
        shared: whether the threads share each step's hidden units, instead of directions and strands.
    """

    rows: int = 1
    blocks: int = 1
    strands: int = 1
    shared: bool = False


def recurrent_kernel(recurrence: Recurrence, tiling: Tiling | None = None) -> tirx.PrimFunc:
    """Returns the kernel of a recurrence; its parameters are the recurrence's, and then its results."""
    with IRBuilder() as builder, T.prim_func(is_private=True, s_tir=True):
        T.func_attr({"tirx.noalias": True, "op_pattern": OPAQUE, RECURRENCE: recurrence.to_json()})
        _Writer(recurrence, tiling or Tiling()).write()
    return builder.get()


class _Writer:
    """Writes the kernel's statements into the current function.

    Its buffers, besides the parameters: ``h`` (2, directions, batch, padded), the states after even and odd steps;
    ``c``, an LSTM's cells; ``factor``, what the recurrent weights are multiplied with where that is not ``h``;
    ``update``, a GRU's update gate; ``scale``, that of each direction's quantised states; and ``sums``, in registers.
    """

    def __init__(self, recurrence: Recurrence, tiling: Tiling) -> None:
        self._own, self._tiling = recurrence, tiling
        self._tiles = recurrence.batch // tiling.rows
        self._groups = recurrence.blocks // tiling.blocks
        self._equations = [CellEquations(recurrence, direction) for direction in range(recurrence.directions)]
        self._buffers = {each.name: _argument(each) for each in (*recurrence.parameters, *recurrence.results)}
        states = (recurrence.directions, recurrence.batch, recurrence.padded)
        self._resets_first = recurrence.cell == "gru" and not recurrence.reset_after
        self._h = _allocated(2, *states)
        self._c = _allocated(*states) if recurrence.cell == "lstm" else None
        self._factor = _allocated(*states) if self._resets_first or recurrence.quantized else None
        self._update = _allocated(*states) if self._resets_first else None
        self._scale = _allocated(recurrence.directions) if recurrence.quantized else None
        self._low, self._high = (_allocated(LANES, scope="local") if recurrence.quantized else None for _ in range(2))
        self._sums = _allocated(tiling.rows, tiling.blocks, recurrence.gates, LANES, scope="local")

    def write(self) -> None:
        """Writes the whole kernel."""
        if self._tiling.shared:
            self._write_shared()
        else:
            self._write_strands()

    def _write_strands(self) -> None:
        strands = self._tiling.strands
        rows, tiles = self._own.batch // strands, self._tiles // strands
        with T.parallel(0, self._own.directions * strands) as strand:
            direction, first_row = strand // strands, strand % strands * rows
            self._begin(direction, first_row, rows)
            with T.serial(0, self._own.steps) as step:
                if self._own.quantized:
                    self._quantize(step, direction)
                for part in self._parts():
                    # Weights of a group stay in the cache from one tile to the next.
                    with T.serial(0, self._groups) as group, T.serial(0, tiles) as tile:
                        part(step, direction, first_row + tile * self._tiling.rows, group)
            self._end(direction, first_row, rows)

    def _write_shared(self) -> None:
        n_places, per_direction = self._own.directions * self._own.batch, self._groups * self._tiles
        with T.attr({"pragma_parallel_launch_point": 1}):
            with _phase(n_places) as place:
                self._begin(place // self._own.batch, place % self._own.batch, 1)
            with T.serial(0, self._own.steps) as step:
                if self._own.quantized:
                    with _phase(self._own.directions) as direction:
                        self._quantize(step, direction)
                for part in self._parts():
                    # A thread has the same groups in each step, whose weights stay in its cache.
                    with _phase(self._own.directions * per_direction) as index:
                        group, tile = index % per_direction // self._tiles, index % self._tiles
                        part(step, index // per_direction, tile * self._tiling.rows, group)
            with _phase(n_places) as place:
                self._end(place // self._own.batch, place % self._own.batch, 1)

    def _parts(self) -> Sequence[Callable[..., None]]:
        """Returns what a step consists of; each part needs all groups of the one before."""
        return (self._reset, self._replace) if self._resets_first else (self._replace,)

    def _begin(self, direction: Value, first_row: Value, rows: int) -> None:
        """Copies initial states, and fills them up with zeros."""
        with T.serial(0, rows) as row, T.serial(0, self._own.padded) as unit:
            own, known = (direction, first_row + row, unit), tirx.min(unit, self._own.hidden - 1)
            given = self._buffers["initial_h"][direction, first_row + row, known]
            T.buffer_store(self._h, self._or_zero(unit, given), [0, *own])
            if self._c is not None:
                given = self._buffers["initial_c"][direction, first_row + row, known]
                T.buffer_store(self._c, self._or_zero(unit, given), own)

    def _end(self, direction: Value, first_row: Value, rows: int) -> None:
        """Copies the last states."""
        with T.serial(0, rows) as row, T.serial(0, self._own.hidden) as unit:
            own = (direction, first_row + row, unit)
            T.buffer_store(self._buffers["last_h"], self._h[self._own.steps % 2, *own], own)
            if self._c is not None:
                T.buffer_store(self._buffers["last_c"], self._c[own], own)

    def _quantize(self, step: Value, direction: Value) -> None:
        """Writes the states of a direction as integers less their zero point, as ONNX's DynamicQuantizeLinear does."""
        rows, blocks = self._own.batch, self._own.blocks
        with T.vectorized(0, LANES) as lane:
            T.buffer_store(self._low, _const(0), [lane])
            T.buffer_store(self._high, _const(0), [lane])
        with T.serial(0, rows) as row, T.serial(0, blocks) as block, T.vectorized(0, LANES) as lane:
            state = self._h[step % 2, direction, row, block * LANES + lane]
            T.buffer_store(self._low, tirx.min(self._low[lane], state), [lane])
            T.buffer_store(self._high, tirx.max(self._high[lane], state), [lane])
        low = reduce(tirx.min, (self._low[lane] for lane in range(LANES)))
        high = reduce(tirx.max, (self._high[lane] for lane in range(LANES)))
        T.buffer_store(self._scale, (high - low) / _const(_LEVELS), [direction])
        scale = self._scale[direction]
        # States that are all 0 would divide by 0.
        T.buffer_store(self._high, tirx.Select(scale > _const(0), scale, _const(1)), [0])
        T.buffer_store(self._low, tirx.min(tirx.nearbyint(-low / self._high[0]), _const(_LEVELS)), [0])
        with T.serial(0, rows) as row, T.serial(0, blocks) as block, T.vectorized(0, LANES) as lane:
            place = (direction, row, block * LANES + lane)
            level = tirx.nearbyint(self._h[(step % 2, *place)] / self._high[0])
            limited = tirx.max(tirx.min(level, _const(_LEVELS) - self._low[0]), -self._low[0])
            T.buffer_store(self._factor, limited, place)

    def _reset(self, step: Value, direction: Value, first_row: Value, group: Value) -> None:
        """Opens a GRU's gates and resets the state, for a tile of rows and a group of hidden units."""
        self._multiply(step, direction, first_row, group, (UPDATE, RESET))

        def act(cell: CellEquations) -> None:
            with self._units(step, direction, first_row, group) as (place, gate):
                T.buffer_store(self._update, cell.opening(gate(UPDATE)), place)
                T.buffer_store(self._factor, cell.opening(gate(RESET)) * self._h[(step % 2, *place)], place)

        self._in_direction(direction, act)

    def _replace(self, step: Value, direction: Value, first_row: Value, group: Value) -> None:
        """Computes the next state for a tile of rows and a group of hidden units."""
        self._multiply(step, direction, first_row, group, (HIDDEN,) if self._resets_first else range(self._own.gates))

        def act(cell: CellEquations) -> None:
            with self._units(step, direction, first_row, group) as (place, gate):
                old, unit = self._h[(step % 2, *place)], place[-1]
                new = self._if_active(step, place[1], self._next(cell, step, place, gate), old)
                T.buffer_store(self._h, self._or_zero(unit, new), [(step + 1) % 2, *place])
                if self._own.padded == self._own.hidden:
                    self._give(step, place)

        self._in_direction(direction, act)
        if self._own.padded != self._own.hidden:
            units = self._tiling.blocks * LANES
            with T.serial(0, self._tiling.rows) as row, T.serial(0, units) as unit:
                place = (direction, first_row + row, group * units + unit)
                with T.If(place[-1] < self._own.hidden), T.Then():
                    self._give(step, place)

    def _next(self, cell: CellEquations, step: Value, place: Place, gate: Gate) -> Value:
        """Returns the next state of a hidden unit, and stores an LSTM's next cell."""
        if self._own.cell == "rnn":
            return cell.next_h(gate(0))
        old = self._h[(step % 2, *place)]
        if self._resets_first:
            return cell.mixed(self._update[place], gate(HIDDEN), old)
        if self._own.cell == "gru":
            candidate = self._projected(step, place, HIDDEN) + cell.opening(gate(RESET)) * gate(HIDDEN)
            return cell.mixed(cell.opening(gate(UPDATE)), candidate, old)
        assert self._c is not None
        c, row = self._c[place], place[1]
        T.buffer_store(self._c, self._if_active(step, row, cell.next_c(gate, c, partial(self._peephole, place)), c), place)
        return cell.h_of_c(gate, c, partial(self._peephole, place))

    def _multiply(self, step: Value, direction: Value, first_row: Value, group: Value, gates: Sequence[int]) -> None:
        """Computes the sums of some gates for a tile of rows and a group of hidden units."""
        rows, blocks, weights = self._tiling.rows, self._tiling.blocks, self._buffers["recurrent"]
        for gate in gates:
            with T.unroll(0, rows) as row, T.unroll(0, blocks) as block, T.vectorized(0, LANES) as lane:
                place = (direction, first_row + row, (group * blocks + block) * LANES + lane)
                T.buffer_store(self._sums, self._start(step, place, gate), [row, block, gate, lane])
        with T.serial(0, self._own.hidden) as source, T.unroll(0, rows) as row, T.unroll(0, blocks) as block:
            place = (direction, first_row + row, source)
            factor = self._h[(step % 2, *place)] if self._reads_h(gates) else self._factor[place]
            for gate in gates:
                with T.vectorized(0, LANES) as lane:
                    product = factor * weights[direction, group * blocks + block, source, gate, lane]
                    T.buffer_store(
                        self._sums, self._sums[row, block, gate, lane] + product, [row, block, gate, lane]
                    )

    def _reads_h(self, gates: Sequence[int]) -> bool:
        return self._factor is None or (self._resets_first and UPDATE in gates)

    def _start(self, step: Value, place: Place, gate: int) -> Value:
        """Returns what a gate's products are added to."""
        if self._own.quantized:
            return _const(0)
        if self._own.reset_after and gate == HIDDEN:
            return self._buffers["bias"][place[0], place[-1]]
        return self._projected(step, place, gate)

    @contextmanager
    def _units(self, step: Value, direction: Value, first_row: Value, group: Value) -> Iterator[tuple[Place, Gate]]:
        """Opens loops over a tile of rows and a group of hidden units; yields the place and the gates' sums."""
        rows, blocks = self._tiling.rows, self._tiling.blocks
        with T.unroll(0, rows) as row, T.unroll(0, blocks) as block, T.vectorized(0, LANES) as lane:
            place = (direction, first_row + row, (group * blocks + block) * LANES + lane)

            def gate(which: int) -> Value:
                found = self._sums[row, block, which, lane]
                if not self._own.quantized:
                    return found
                scale = self._scale[direction] * self._buffers["scales"][direction, which, place[-1]]
                return self._projected(step, place, which) + found * scale

            yield place, gate

    def _projected(self, step: Value, place: Place, gate: int) -> Value:
        """Returns the product of the inputs for a gate of a hidden unit."""
        direction, row, unit = place
        time = self._time(step, direction, row)
        outer = (row, time) if self._own.batch_first else (time, row)
        return self._buffers["projected"][(*outer, direction, gate, unit)]

    def _peephole(self, place: Place, gate: int) -> Value:
        return self._buffers["peepholes"][place[0], gate, place[-1]]

    def _give(self, step: Value, place: Place) -> None:
        """Writes a hidden unit's new state into the result."""
        direction, row, unit = place
        at = {"t": self._time(step, direction, row), "n": row, "d": direction}
        value = self._if_active(step, row, self._h[((step + 1) % 2, *place)], _const(0))
        T.buffer_store(self._buffers["y"], value, [*(at[axis] for axis in self._own.axes), unit])

    def _time(self, step: Value, direction: Value, row: Value) -> Value:
        """Returns which step of a sequence comes next; behind its end, all directions go forward."""
        backward = self._own.backward
        if not any(backward):
            return step
        length = self._buffers["lengths"][row] if self._own.lengths else self._own.steps
        last = self._if_active(step, row, length - 1 - step, step)
        if all(backward):
            return last
        chosen = [direction == index for index, is_backward in enumerate(backward) if is_backward]
        return tirx.Select(reduce(tirx.any, chosen), last, step)

    def _if_active(self, step: Value, row: Value, value: Value, otherwise: Value) -> Value:
        """Returns the first value while a sequence lasts, and then the other one."""
        return tirx.Select(step < self._buffers["lengths"][row], value, otherwise) if self._own.lengths else value

    def _or_zero(self, unit: Value, value: Value) -> Value:
        """Returns zero for what fills up the last block."""
        return value if self._own.padded == self._own.hidden else tirx.Select(unit < self._own.hidden, value, _const(0))

    def _in_direction(self, direction: Value, act: Callable[[CellEquations], None]) -> None:
        """Writes statements that depend on a direction's activations."""
        if len(set(self._own.activations)) == 1:
            act(self._equations[0])
            return
        for index, equations in enumerate(self._equations):
            with T.If(direction == index), T.Then():
                act(equations)


@contextmanager
def _phase(count: int) -> Iterator[Any]:
    """Opens a loop whose turns the threads of a parallel launch share; all wait for each other at its end."""
    with T.attr({"pragma_parallel_barrier_when_finish": 1}), T.parallel(0, count) as index:
        yield index


def _argument(parameter: Parameter) -> Any:
    return T.arg(parameter.name, T.buffer(parameter.shape, parameter.dtype))


def _allocated(*shape: int, scope: str = "global") -> Any:
    return T.sblock_alloc_buffer(shape, "float32", scope=scope)


def _const(value: float) -> Any:
    return tirx.const(value, "float32")
