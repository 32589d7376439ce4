"""Reports how well a program uses the accelerator: busy modules, the roofline, and a timeline picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from anole.targets.vta.geometry import INSTRUCTION_BYTES
from anole.targets.vta.isa import Alu, Gemm, Instruction, Load
from anole.targets.vta.simulator.steps import Module, module_of
from anole.targets.vta.simulator.timing import Timeline, is_extrapolated, simulate
from anole.targets.vta.templates.program import Program


@dataclass(frozen=True)
class Utilisation:
    """The work of a program and the cycles it takes.

    Attributes:
        cycles: cycles of the whole program.
        busy: busy cycles of each module, by its name.
        operations: GEMM operations, each a (batch, block_in) by (block_in, block_out) product.
        multiply_adds: multiply-adds of all GEMM operations.
        read_bytes, write_bytes: bytes over the memory bus, including instructions.
    """

    cycles: int
    busy: dict[str, int]
    operations: int
    multiply_adds: int
    read_bytes: int
    write_bytes: int

    @property
    def gemm_share(self) -> float:
        """The share of the cycles in which the matrix unit works."""
        return self.operations / self.cycles


@dataclass(frozen=True)
class ProgramRoofline:
    """The roofline bound of a program.

    Attributes:
        intensity: multiply-adds per byte over the bus.
        peak: multiply-adds of the matrix unit per cycle.
        attainable: the part of the peak that the bus allows.
        reached: multiply-adds of the program per cycle.
    """

    intensity: float
    peak: float
    attainable: float
    reached: float


def utilisation(program: Program, timeline: Timeline) -> Utilisation:
    """Returns the work of a program and the cycles it takes."""
    g = program.geometry
    busy = {module.name.lower(): 0 for module in Module}
    for instruction, start, end in zip(program.instructions, timeline.start, timeline.end, strict=True):
        busy[module_of(instruction).name.lower()] += end - start
    operations = sum(
        each.iter_out * each.iter_in * (each.uop_end - each.uop_begin)
        for each in program.instructions
        if isinstance(each, Gemm) and not each.reset
    )
    return Utilisation(
        timeline.cycles,
        busy,
        operations,
        operations * g.batch * g.block_in * g.block_out,
        timeline.read_beats * g.bus_bytes + len(program.instructions) * INSTRUCTION_BYTES,
        timeline.write_beats * g.bus_bytes,
    )


def roofline(program: Program, used: Utilisation) -> ProgramRoofline:
    """Returns what bounds a program: the matrix unit, or the bus."""
    g = program.geometry
    intensity = used.multiply_adds / (used.read_bytes + used.write_bytes)
    peak = float(g.batch * g.block_in * g.block_out)
    return ProgramRoofline(intensity, peak, min(peak, intensity * g.bus_bytes), used.multiply_adds / used.cycles)


def summarize(program: Program) -> tuple[str, Timeline]:
    """Returns a report for people, and the timeline of the program."""
    timeline = simulate(program.instructions, program.geometry)
    used = utilisation(program, timeline)
    roof = roofline(program, used)
    bound = "the matrix unit" if roof.attainable == roof.peak else "the memory bus"
    lines = [
        f"instructions  {len(program.instructions):12}",
        f"cycles        {used.cycles:12}" + ("  extrapolated" if is_extrapolated(program.geometry) else ""),
        *(f"{name:8} busy {cycles:12}  {cycles / used.cycles:6.1%}" for name, cycles in used.busy.items()),
        f"matrix unit   {used.operations:12}  {used.gemm_share:6.1%} of the cycles",
        f"read          {used.read_bytes:12}  bytes",
        f"written       {used.write_bytes:12}  bytes",
        f"intensity     {roof.intensity:12.1f}  multiply-adds a byte",
        f"reached       {roof.reached:12.1f}  multiply-adds a cycle, {roof.reached / roof.attainable:.1%} of what "
        f"{bound} allows ({roof.attainable:.1f}; the peak is {roof.peak:.0f})",
    ]
    return "\n".join(lines), timeline


_COLOURS = {"load": "#4477aa", "gemm": "#228833", "alu": "#ccbb44", "read": "#66ccee", "store": "#ee6677"}
_WIDTH, _ROW, _LEFT, _TOP = 1000, 28, 70, 24


def draw_timeline(program: Sequence[Instruction], timeline: Timeline, until: int | None = None) -> str:
    """Returns a picture (SVG) of the instructions that each module runs over time, to its end or until a cycle."""
    end = min(until or timeline.cycles, timeline.cycles)
    scale = (_WIDTH - _LEFT - 10) / end
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_TOP + 3 * _ROW + 40}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for row, module in enumerate(Module):
        y = _TOP + row * _ROW
        parts.append(f'<text x="6" y="{y + 15}">{module.name.lower()}</text>')
        for number, (instruction, start, stop) in enumerate(zip(program, timeline.start, timeline.end, strict=True)):
            if module_of(instruction) == module and start < end and stop > start + 1:
                width = max(0.3, (min(stop, end) - start) * scale)
                kind = _kind(instruction)
                parts.append(
                    f'<rect x="{_LEFT + start * scale:.2f}" y="{y}" width="{width:.2f}" height="{_ROW - 8}" '
                    f'fill="{_COLOURS[kind]}"><title>{escape(f"{number}: {kind}, {start} to {stop}")}</title></rect>'
                )
    axis = _TOP + 3 * _ROW
    for tick in range(5):
        cycle = end * tick // 4
        parts.append(f'<text x="{_LEFT + cycle * scale:.0f}" y="{axis + 10}" text-anchor="middle">{cycle}</text>')
    for position, (kind, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + 90 * position
        parts.append(f'<rect x="{x}" y="{axis + 20}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="{axis + 29}">{kind}</text>')
    parts.append(f'<text x="{_WIDTH - 10}" y="{axis + 29}" text-anchor="end">cycles</text></svg>')
    return "\n".join(parts) + "\n"


def _kind(instruction: Instruction) -> str:
    if isinstance(instruction, Gemm):
        return "gemm"
    if isinstance(instruction, Alu):
        return "alu"
    if isinstance(instruction, Load):
        return "load" if module_of(instruction) == Module.LOAD else "read"
    return "store"
