"""Tools for hardware designers: cycle counts of convolution schedules, and timelines of instruction streams."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anole.errors import ConfigError, TargetError
from anole.task import Conv2d
from anole_vta.geometry import DEFAULT, Geometry, Memory
from anole_vta.isa import Instruction, StreamError, check, decode
from anole_vta.simulator.activity import module_of
from anole_vta.simulator.timing import cycles_of, simulate
from anole_vta.templates.conv2d import SHIFT_AND_CLIP, Bias, Schedule, lower_conv2d
from anole_vta.templates.program import Program

_SHAPE = re.compile(r"(?:(\d+)x)?(\d+)x(\d+)(?:_div([1-9]\d*))?")
_WORKLOAD = ("h", "w", "ci", "co", "kh", "kw", "pad", "stride")
_SCHEDULE = ("tile_h", "tile_w", "tile_ci", "tile_co", "h_nt", "oc_nt")
"""The names of a row's fields, in the order of the fields of `Schedule`."""


def parse_shape(shape: str) -> Geometry:
    """Return the geometry with a name such as ``16x16``, ``1x32x32`` or ``32x32_div16``; raise TargetError for others.

    Without a divisor, the buffers have VTA's sizes in bytes. With divisor d, they have 1/d of the elements of VTA's
    buffers with VTA's block, and the instruction queues 1/d of the entries.
    """
    match = _SHAPE.fullmatch(shape)
    if match is None:
        raise TargetError(f"shape {shape!r}: allowed is [BATCHx]BLOCK_INxBLOCK_OUT, optionally followed by _divN")
    batch, block_in, block_out, divisor = (int(group or 1) for group in match.groups())
    block = Geometry(batch, block_in, block_out)
    if match.group(4) is None:
        return block
    sizes_bytes: dict[str, Any] = {
        f"{memory.name.lower()}_bytes": DEFAULT.depth(memory) // divisor * block.element_bytes(memory)
        for memory in (Memory.UOP, Memory.INP, Memory.WGT, Memory.ACC)
    }
    return Geometry(batch, block_in, block_out, **sizes_bytes, queue_entries=DEFAULT.queue_entries // divisor)


@dataclass(frozen=True)
class ScheduleRow:
    """A row of a schedule file: a convolution, its schedule, and an accelerator.

    Attributes:
        plain: the entire row as read.
        shape: the name of the accelerator, see `parse_shape`.
    """

    plain: Mapping[str, Any]
    shape: str
    workload: Conv2d
    schedule: Schedule
    has_bias: bool

    def program(self) -> Program:
        """Return the row's program; raise ConfigError with a reason, or TargetError for an unknown geometry."""
        shift, *clip = SHIFT_AND_CLIP
        epilogue = (shift, Bias(), *clip) if self.has_bias else SHIFT_AND_CLIP
        return lower_conv2d(self.workload, self.schedule, parse_shape(self.shape), epilogue)

    def with_cycles(self) -> dict[str, Any]:
        """Return the row with its ``cycles``, or the reason it is ``rejected``; raise TargetError as `program` does."""
        plain = {name: value for name, value in self.plain.items() if name not in ("cycles", "rejected")}
        try:
            program = self.program()
        except ConfigError as error:
            return {**plain, "rejected": str(error)}
        return {**plain, "cycles": cycles_of(program.instructions, program.geometry)}


def read_schedules(path: Path) -> list[ScheduleRow]:
    """Read a file of schedules; raise StreamError if it, or a row, is invalid."""
    rows = _read(path)
    if not isinstance(rows, list):
        raise StreamError(f"{path}: is not a list of schedules")
    return [_schedule_row(f"{path}: row {number}", row) for number, row in enumerate(rows)]


def _schedule_row(location: str, row: Any) -> ScheduleRow:
    workload = row.get("workload") if isinstance(row, dict) else None
    if not isinstance(workload, dict) or not isinstance(row.get("shape"), str):
        raise StreamError(f"{location}: has no workload, or no shape")
    integers = {**{name: workload.get(name) for name in _WORKLOAD}, **{name: row.get(name) for name in _SCHEDULE}}
    for name, value in integers.items():
        minimum = 0 if name == "pad" else 1
        if type(value) is not int or value < minimum:
            raise StreamError(f"{location}: {name} is {value!r}; allowed is an integer >= {minimum}")
    height, width, ci, co, kernel_h, kernel_w, pad, stride = (integers[name] for name in _WORKLOAD)
    w = Conv2d(1, height, width, ci, co, (kernel_h, kernel_w), (stride, stride), (pad,) * 4)
    schedule = Schedule(*(integers[name] for name in _SCHEDULE))
    return ScheduleRow(row, row["shape"], w, schedule, bool(row.get("bias")))


def trace(path: Path, geometry: Geometry) -> list[dict[str, Any]]:
    """Simulate a stream, and return the module, text, start and end of every instruction.

    Raises:
        StreamError: the file is not a stream, or the stream cannot run; the message names the instruction.
    """
    program = _read_stream(path, geometry)
    timeline = simulate(program, geometry)
    return [
        {
            "number": number,
            "module": module_of(instruction).name.lower(),
            "instruction": _describe(instruction),
            "start": start,
            "end": end,
        }
        for number, (instruction, start, end) in enumerate(zip(program, timeline.start, timeline.end, strict=True))
    ]


def _read_stream(path: Path, geometry: Geometry) -> Sequence[Instruction]:
    """Read a stream: a JSON object with ``rows``, each with the ``hex`` of an instruction."""
    plain = _read(path)
    rows = plain.get("rows") if isinstance(plain, dict) else None
    if not isinstance(rows, list):
        raise StreamError(f"{path}: is not a stream: it has no rows")
    program = []
    for number, row in enumerate(rows):
        try:
            instruction = decode(int(row["hex"], 16), geometry)
            check(instruction, geometry)
        except StreamError as error:
            raise StreamError(f"{path}: instruction {number}: {error}") from None
        except (TypeError, KeyError, ValueError):
            raise StreamError(f"{path}: instruction {number}: has no hex of 32 digits") from None
        program.append(instruction)
    return program


def _describe(instruction: Instruction) -> str:
    """Format an instruction with its non-zero fields, and the tokens that it pops and pushes."""
    fields = instruction._asdict()
    flags = fields.pop("dependence")
    parts = [
        f"{name}={value.name if hasattr(value, 'name') else int(value)}"
        for name, value in fields.items()
        if value or hasattr(value, "name")
    ]
    parts += [name for name, flag in flags._asdict().items() if flag]
    return " ".join([type(instruction).__name__.upper(), *parts])


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StreamError(f"{path}: cannot be read: {error}") from error
