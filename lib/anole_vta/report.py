"""The utilization of the accelerator by a program: busy modules, roofline, and a timeline as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from xml.sax.saxutils import escape

from anole_vta.geometry import INSTRUCTION_BYTES, Geometry
from anole_vta.isa import Gemm, Instruction, Load
from anole_vta.simulator.activity import Module, module_of
from anole_vta.simulator.timing import Timeline, is_extrapolated, simulate
from anole_vta.templates.program import Program


@dataclass(frozen=True)
class Utilization:
    """The work of a program, its cycles, and its roofline.

    Attributes:
        busy: busy cycles by the name of the module.
        operations: GEMM operations, each a (batch, block_in) by (block_in, block_out) product.
        read_bytes, write_bytes: bytes over the memory bus, including instructions.
    """

    geometry: Geometry
    cycles: int
    busy: dict[str, int]
    operations: int
    read_bytes: int
    write_bytes: int

    @property
    def gemm_share(self) -> float:
        """The share of the cycles in which the GEMM core works."""
        return self.operations / self.cycles

    @property
    def peak(self) -> int:
        """The peak multiply-adds per cycle of the GEMM core."""
        return prod(self.geometry.block)

    @property
    def reached(self) -> float:
        """The multiply-adds per cycle of the program."""
        return self.operations * self.peak / self.cycles

    @property
    def intensity(self) -> float:
        """The multiply-adds per byte over the bus."""
        return self.operations * self.peak / (self.read_bytes + self.write_bytes)

    @property
    def attainable(self) -> float:
        """The multiply-adds per cycle that the roofline allows."""
        return min(self.peak, self.intensity * self.geometry.bus_bytes)


def utilization(program: Program, timeline: Timeline) -> Utilization:
    """Return the utilization of the accelerator by a program."""
    g = program.geometry
    busy = {module.name.lower(): 0 for module in Module}
    for instruction, start, end in zip(program.instructions, timeline.start, timeline.end, strict=True):
        busy[module_of(instruction).name.lower()] += end - start
    operations = sum(
        gemm.iter_out * gemm.iter_in * (gemm.uop_end - gemm.uop_begin)
        for gemm in program.instructions
        if isinstance(gemm, Gemm) and not gemm.reset
    )
    read_bytes = timeline.read_beats * g.bus_bytes + len(program.instructions) * INSTRUCTION_BYTES
    return Utilization(g, timeline.cycles, busy, operations, read_bytes, timeline.write_beats * g.bus_bytes)


def summarize(program: Program) -> tuple[str, Timeline]:
    """Return a readable report on a program, and its timeline."""
    timeline = simulate(program.instructions, program.geometry)
    usage = utilization(program, timeline)
    bound = "the GEMM core" if usage.attainable == usage.peak else "the memory bus"
    # Pooling does not use the GEMM core.
    share = usage.reached / usage.attainable if usage.operations else 0.0
    lines = [
        f"instructions  {len(program.instructions):12}",
        f"cycles        {usage.cycles:12}" + ("  extrapolated" if is_extrapolated(program.geometry) else ""),
        *(f"{name:8} busy {cycles:12}  {cycles / usage.cycles:6.1%}" for name, cycles in usage.busy.items()),
        f"GEMM core     {usage.operations:12}  {usage.gemm_share:6.1%} of the cycles",
        f"read          {usage.read_bytes:12}  bytes",
        f"written       {usage.write_bytes:12}  bytes",
        f"intensity     {usage.intensity:12.1f}  multiply-adds per byte",
        f"reached       {usage.reached:12.1f}  multiply-adds per cycle, {share:.1%} of what "
        f"{bound} allows ({usage.attainable:.1f}; the peak is {usage.peak:.0f})",
    ]
    return "\n".join(lines), timeline


_COLORS = {"load": "#4477aa", "gemm": "#228833", "alu": "#ccbb44", "read": "#66ccee", "store": "#ee6677"}
_WIDTH, _ROW, _LEFT, _TOP = 1000, 28, 70, 24


def draw_timeline(program: Sequence[Instruction], timeline: Timeline, until: int | None = None) -> str:
    """Draw the instructions that each module runs over time as SVG, up to a cycle or to the end."""
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
                    f'fill="{_COLORS[kind]}"><title>{escape(f"{number}: {kind}, {start} to {stop}")}</title></rect>'
                )
    axis = _TOP + 3 * _ROW
    for tick in range(5):
        cycle = end * tick // 4
        parts.append(f'<text x="{_LEFT + cycle * scale:.0f}" y="{axis + 10}" text-anchor="middle">{cycle}</text>')
    for position, (kind, color) in enumerate(_COLORS.items()):
        x = _LEFT + 90 * position
        parts.append(f'<rect x="{x}" y="{axis + 20}" width="10" height="10" fill="{color}"/>')
        parts.append(f'<text x="{x + 14}" y="{axis + 29}">{kind}</text>')
    parts.append(f'<text x="{_WIDTH - 10}" y="{axis + 29}" text-anchor="end">cycles</text></svg>')
    return "\n".join(parts) + "\n"


def _kind(instruction: Instruction) -> str:
    if isinstance(instruction, Load) and module_of(instruction) != Module.LOAD:
        return "read"
    return type(instruction).__name__.lower()
