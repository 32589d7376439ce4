"""One time step of a recurrent layer as TensorIR statements, independent of the loops around it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from anole.ir.polynomials import Value, const
from anole.targets.shared.recurrence import LANES, Parameter, Recurrence
from anole.targets.shared.recurrent_cell import HIDDEN, RESET, UPDATE, CellEquations

_LEVELS = 255
"""Number of quantization steps between the minimum and maximum of a state in 8 bits."""

UnitPosition = tuple[Value, Value, Value]
"""A direction, a row of the batch and a hidden unit."""

Gate = Callable[[int], Value]
Sums = Callable[[int], tuple[Value, ...]]
"""Maps a gate to the indices of its accumulator."""


@dataclass(frozen=True)
class Arguments:
    """The operands of the current function, and its dynamic extents, by their names."""

    buffers: Mapping[str, Any]
    symbols: Mapping[str | None, Value]

    @classmethod
    def declare(cls, recurrence: Recurrence) -> Arguments:
        """Declare the operands of a recurrence."""
        names = {recurrence.steps_symbol, recurrence.batch_symbol} - {None}
        symbols = {name: tirx.Var(name, "int64") for name in names}
        buffers = {item.name: _argument(item, symbols) for item in (*recurrence.parameters, *recurrence.results)}
        return cls(buffers, {name: symbol.astype("int32") for name, symbol in symbols.items()})


class RecurrentStep(ABC):
    """An emitter of the statements of a step into the current function.

    Its buffers, besides the parameters: ``h`` (halves, *slots), the states before even and odd steps; ``c``, an LSTM's
    cells; ``factor``, the factors of the recurrent weights unless they are ``h``; ``update``, a GRU's update gate;
    ``scale``, the scale of each direction's quantized states; ``sums``, the accumulators of a tile's gates.
    """

    def __init__(self, recurrence: Recurrence, arguments: Arguments) -> None:
        self._layer = recurrence
        self._buffers = arguments.buffers
        self._steps = arguments.symbols.get(recurrence.steps_symbol, recurrence.steps)
        self._batch = arguments.symbols.get(recurrence.batch_symbol, recurrence.batch)
        self._equations = [CellEquations(recurrence, direction) for direction in range(recurrence.directions)]
        self._resets_first = recurrence.cell == "gru" and not recurrence.reset_after
        self._has_factor = self._resets_first or recurrence.quantized
        self._has_surplus = False
        self._sums: Any = None

    def _allocate(self, slots: Sequence[Value], scope: str = "global") -> None:
        """Allocate the buffers; buffers of states have the shape `slots` and the given scope."""
        layer = self._layer

        def states(*shape: int) -> Any:
            return allocate(*shape, *slots, scope=scope)

        self._h: Any = states(1 if self._has_factor else 2)
        self._c: Any = states() if layer.cell == "lstm" else None
        self._factor: Any = states() if self._has_factor else None
        self._update: Any = states() if self._resets_first else None
        self._scale: Any = allocate(layer.directions) if layer.quantized else None

    @abstractmethod
    def _tile(
        self, direction: Value, first_row: Value, group: Value, has_lanes: bool = True
    ) -> AbstractContextManager[tuple[UnitPosition, Sums]]:
        """Open loops over a tile of rows and a group of hidden units; yield the position and accumulator indices."""

    @abstractmethod
    def _allocated_sums(self) -> Any:
        """Allocate the accumulators of a tile."""

    def _slot(self, position: UnitPosition) -> tuple[Value, ...]:
        """Return the indices of a position in a buffer of states."""
        return position

    def parts(self) -> Sequence[Callable[..., None]]:
        """Return the parts of a step; each part needs the previous part of all groups."""
        return (self.reset, self.replace) if self._resets_first else (self.replace,)

    def begin(self, position: UnitPosition) -> None:
        """Copy the initial state of a hidden unit, or store 0 if the unit is padding."""
        direction, row, unit = position
        source = (direction, self._clamped_row(row), tirx.min(unit, self._layer.hidden - 1))
        T.buffer_store(self._h, self._or_zero(unit, self._buffers["initial_h"][source]), [0, *self._slot(position)])
        if self._layer.cell == "lstm":
            T.buffer_store(self._c, self._or_zero(unit, self._buffers["initial_c"][source]), self._slot(position))

    def end(self, position: UnitPosition) -> None:
        """Copy the final state of a hidden unit."""
        with self._if_row(position[1]):
            T.buffer_store(self._buffers["last_h"], self._state(self._steps, position), position)
            if self._layer.cell == "lstm":
                T.buffer_store(self._buffers["last_c"], self._c[self._slot(position)], position)

    def quantize(self, step: Value, direction: Value) -> None:
        """Quantize the states of a direction like ONNX's DynamicQuantizeLinear, and subtract the zero point."""
        rows, blocks = self._batch, self._layer.blocks
        lows, highs = (allocate(LANES, scope="local") for _ in range(2))
        with T.vectorized(0, LANES) as lane:
            T.buffer_store(lows, const(0), [lane])
            T.buffer_store(highs, const(0), [lane])
        with T.serial(0, rows) as row, T.serial(0, blocks) as block, T.vectorized(0, LANES) as lane:
            state = self._state(step, (direction, row, block * LANES + lane))
            T.buffer_store(lows, tirx.min(lows[lane], state), [lane])
            T.buffer_store(highs, tirx.max(highs[lane], state), [lane])
        low = reduce(tirx.min, (lows[lane] for lane in range(LANES)))
        high = reduce(tirx.max, (highs[lane] for lane in range(LANES)))
        # TVM would turn division by a constant into multiplication by its reciprocal, which may round differently.
        levels = allocate(1, scope="local")
        T.buffer_store(levels, const(_LEVELS), [0])
        T.buffer_store(self._scale, (high - low) / levels[0], [direction])
        scale = self._scale[direction]
        # If all states are 0, the scale is 0, too.
        T.buffer_store(highs, tirx.Select(scale > const(0), scale, const(1)), [0])
        T.buffer_store(lows, tirx.min(tirx.nearbyint(-low / highs[0]), const(_LEVELS)), [0])
        with T.serial(0, rows) as row, T.serial(0, blocks) as block, T.vectorized(0, LANES) as lane:
            position = (direction, row, block * LANES + lane)
            level = tirx.nearbyint(self._state(step, position) / highs[0])
            clamped = tirx.max(tirx.min(level, const(_LEVELS) - lows[0]), -lows[0])
            T.buffer_store(self._factor, clamped, self._slot(position))

    def reset(self, step: Value, direction: Value, first_row: Value, group: Value) -> None:
        """Compute a GRU's gates and reset the state, for a tile of rows and a group of hidden units."""
        step, first_row, group = self._as_loads(step, first_row, group)
        self._multiply(step, direction, first_row, group, (UPDATE, RESET))

        def act(cell: CellEquations) -> None:
            with self._units(step, direction, first_row, group) as (position, gate):
                T.buffer_store(self._update, cell.opening(gate(UPDATE)), self._slot(position))
                T.buffer_store(
                    self._factor, cell.opening(gate(RESET)) * self._state(step, position), self._slot(position)
                )

        self._in_direction(direction, act)

    def replace(self, step: Value, direction: Value, first_row: Value, group: Value) -> None:
        """Compute the next state for a tile of rows and a group of hidden units."""
        step, first_row, group = self._as_loads(step, first_row, group)
        self._multiply(step, direction, first_row, group, (HIDDEN,) if self._resets_first else range(self._layer.gates))

        def act(cell: CellEquations) -> None:
            with self._units(step, direction, first_row, group) as (position, gate):
                old, unit = self._state(step, position), position[-1]
                new = self._if_active(step, position[1], self._next(cell, step, position, gate), old)
                T.buffer_store(self._h, self._or_zero(unit, new), [self._half(step + 1), *self._slot(position)])
                if self._layer.padded == self._layer.hidden:
                    self._store_result(step, position)

        self._in_direction(direction, act)
        if self._layer.padded != self._layer.hidden:
            with self._tile(direction, first_row, group, has_lanes=False) as (position, _):
                with run_if(position[-1] < self._layer.hidden):
                    self._store_result(step, position)

    def _as_loads(self, *variables: Value) -> list[Value]:
        """Begin a part of a step: store the variables in a buffer, and return loads from it.

        TVM's common subexpression elimination binds expressions of several loops within one of them, and LLVM rejects
        their uses in the others. TVM does not touch loads, which LLVM optimizes away. Each part allocates its own
        registers, since TVM would allocate shared registers outside of the threads.
        """
        self._sums = self._allocated_sums()
        variables_buffer = T.sblock_alloc_buffer((len(variables),), "int32", scope="local")
        for index, variable in enumerate(variables):
            T.buffer_store(variables_buffer, variable, [index])
        return [variables_buffer[index] for index in range(len(variables))]

    def _next(self, cell: CellEquations, step: Value, position: UnitPosition, gate: Gate) -> Value:
        """Return the next state of a hidden unit, and store an LSTM's next cell."""
        if self._layer.cell == "rnn":
            return cell.opening(gate(0))
        old = self._state(step, position)
        if self._resets_first:
            return cell.gru_next_h(self._update[self._slot(position)], gate(HIDDEN), old)
        if self._layer.cell == "gru":
            candidate = self._projection(step, position, HIDDEN) + cell.opening(gate(RESET)) * gate(HIDDEN)
            return cell.gru_next_h(cell.opening(gate(UPDATE)), candidate, old)
        c, peephole = self._c[self._slot(position)], partial(self._peephole, position)
        T.buffer_store(
            self._c, self._if_active(step, position[1], cell.next_c(gate, c, peephole), c), self._slot(position)
        )
        return cell.lstm_next_h(gate, c, peephole)

    def _multiply(self, step: Value, direction: Value, first_row: Value, group: Value, gates: Sequence[int]) -> None:
        """Compute the accumulators of some gates for a tile of rows and a group of hidden units."""
        weights = self._buffers["recurrent"]
        with self._tile(direction, first_row, group) as (position, sums):
            for gate in gates:
                T.buffer_store(self._sums, self._start(step, position, gate), sums(gate))
        with T.serial(0, self._layer.hidden) as at, self._tile(direction, first_row, group) as (position, sums):
            source, (row, unit) = self._source(step, at), position[1:]
            factor = self._factor_at(step, (direction, row, source), gates)
            for gate in gates:
                weight = weights[direction, unit // LANES, source, gate, unit % LANES].astype("float32")
                T.buffer_store(self._sums, self._sums[sums(gate)] + factor * weight, sums(gate))

    def _source(self, step: Value, at: Value) -> Value:
        """Return the hidden unit whose products are added next."""
        return at

    def _factor_at(self, step: Value, position: UnitPosition, gates: Sequence[int]) -> Value:
        """Return the factor of the recurrent weights of some gates."""
        if not self._has_factor or (self._resets_first and UPDATE in gates):
            return self._state(step, position)
        direction, row, unit = position
        # Rows beyond the batch have not been quantized.
        return self._factor[self._slot((direction, self._clamped_row(row) if self._layer.quantized else row, unit))]

    def _start(self, step: Value, position: UnitPosition, gate: int) -> Value:
        """Return the initial value of a gate's accumulator."""
        if self._layer.quantized:
            return const(0)
        if self._layer.reset_after and gate == HIDDEN:
            return self._buffers["bias"][position[0], position[-1]]
        return self._projection(step, position, gate)

    @contextmanager
    def _units(
        self, step: Value, direction: Value, first_row: Value, group: Value
    ) -> Iterator[tuple[UnitPosition, Gate]]:
        """Open the loops of a tile; yield a hidden unit's position and the inputs of its gates' activations."""
        with self._tile(direction, first_row, group) as (position, sums):

            def gate(index: int) -> Value:
                total = self._sums[sums(index)]
                if not self._layer.quantized:
                    return total
                scale = self._scale[direction] * self._buffers["scales"][direction, index, position[-1]]
                return self._projection(step, position, index) + total * scale

            yield position, gate

    def _half(self, step: Value) -> Value:
        """Return the half of the buffer with the states before a step; with `factor`, there is only one half."""
        return 0 if self._has_factor else step % 2

    def _state(self, step: Value, position: UnitPosition) -> Value:
        """Return the state of a hidden unit before a step."""
        return self._h[(self._half(step), *self._slot(position))]

    def _projection(self, step: Value, position: UnitPosition, gate: int) -> Value:
        """Return the projected inputs for a gate of a hidden unit."""
        direction, row, unit = position
        time = self._time(step, direction, row)
        outer = (self._clamped_row(row), time) if self._layer.batch_first else (time, self._clamped_row(row))
        return self._buffers["projected"][(*outer, direction, gate, unit)]

    def _peephole(self, position: UnitPosition, gate: int) -> Value:
        return self._buffers["peepholes"][position[0], gate, position[-1]]

    def _store_result(self, step: Value, position: UnitPosition) -> None:
        """Store a hidden unit's new state in the result."""
        direction, row, unit = position
        at = {"t": self._time(step, direction, row), "n": row, "d": direction}
        value = self._if_active(step, row, self._state(step + 1, position), const(0))
        with self._if_row(row):
            T.buffer_store(self._buffers["y"], value, [*(at[axis] for axis in self._layer.axes), unit])

    def _time(self, step: Value, direction: Value, row: Value) -> Value:
        """Return the time of a sequence's next step; beyond its end, all directions go forward."""
        backward = self._layer.backward
        if not any(backward):
            return step
        length = tirx.min(self._length(row), self._steps) if self._layer.lengths else self._steps
        reversed_step = self._if_active(step, row, length - 1 - step, step)
        if all(backward):
            return reversed_step
        conditions = [direction == index for index, is_backward in enumerate(backward) if is_backward]
        return tirx.Select(reduce(tirx.any, conditions), reversed_step, step)

    def _if_active(self, step: Value, row: Value, value: Value, otherwise: Value) -> Value:
        """Select the first value until the end of a sequence, and the second value after it."""
        return tirx.Select(step < self._length(row), value, otherwise) if self._layer.lengths else value

    def _length(self, row: Value) -> Value:
        return self._buffers["lengths"][self._clamped_row(row)]

    def _clamped_row(self, row: Value) -> Value:
        """Clamp a row to the batch: tiles beyond the last row compute it again."""
        return tirx.min(row, self._batch - 1) if self._has_surplus else row

    def _if_row(self, row: Value) -> AbstractContextManager[None]:
        """Open a block that runs if a row is within the batch."""
        return run_if(row < self._batch) if self._has_surplus else nullcontext()

    def _or_zero(self, unit: Value, x: Value) -> Value:
        """Return zero for hidden units that are padding."""
        return x if self._layer.padded == self._layer.hidden else tirx.Select(unit < self._layer.hidden, x, const(0))

    def _in_direction(self, direction: Value, act: Callable[[CellEquations], None]) -> None:
        """Emit statements that depend on a direction's activations."""
        if len(set(self._layer.activations)) == 1:
            act(self._equations[0])
            return
        for index, equations in enumerate(self._equations):
            with T.If(direction == index), T.Then():
                act(equations)


def _argument(parameter: Parameter, symbols: Mapping[str | None, tirx.Var]) -> Any:
    shape = [symbols[extent] if isinstance(extent, str) else extent for extent in parameter.shape]
    return T.arg(parameter.name, T.buffer(shape, parameter.dtype))


@contextmanager
def run_if(condition: Value) -> Iterator[None]:
    """Open a block that runs if a condition holds."""
    with T.If(condition), T.Then():
        yield


def allocate(*shape: Value, scope: str = "global") -> Any:
    """Allocate a float32 buffer in the current function."""
    return T.sblock_alloc_buffer(shape, "float32", scope=scope)
