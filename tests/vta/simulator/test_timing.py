"""The timing simulator against recordings of the generated hardware."""

import json
from pathlib import Path
from statistics import median

import pytest

from anole.errors import ConfigError
from anole.task import Conv2d
from anole_vta.geometry import DEFAULT, Geometry, Memory
from anole_vta.isa import Alu, AluOpcode, Dependence, Finish, Gemm, Load, Store, StreamError, decode
from anole_vta.simulator.timing import is_extrapolated, simulate
from anole_vta.templates.conv2d import SHIFT_AND_CLIP, Bias, Schedule, lower_conv2d
from anole_vta.templates.schedules import parse_shape, read_schedules

DATA = Path(__file__).parents[1] / "data"
STREAMS = sorted(DATA.glob("stream_*.json"))
ROWS = read_schedules(DATA / "conv2d_rtl_cycles.json")
BLOCKS = read_schedules(DATA / "conv2d_rtl_blocks.json")
"""Convolutions with other blocks of the same generator, with different blocks of input and output channels."""
SHAPES = ("16x16", "32x32_div16")


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_every_instruction_runs_at_the_same_time_as_in_hardware(path):
    stream = json.loads(path.read_text())
    program = [decode(int(row["hex"], 16), DEFAULT) for row in stream["rows"]]
    timeline = simulate(program, DEFAULT)
    assert timeline.cycles == stream["total_cycles"]
    assert list(zip(timeline.start, timeline.end, strict=True)) == [
        (row["exe_start"], row["exe_end"]) for row in stream["rows"]
    ]


def test_cycles_are_extrapolated_beyond_the_hardware_that_was_compared():
    compared = {row.shape for row in ROWS}
    assert compared == set(SHAPES) and not any(is_extrapolated(parse_shape(shape)) for shape in SHAPES)
    others = ({"block_out": 128}, {"batch": 2}, {"block_in": 8, "inp_bytes": 1 << 12}, {"bus_bytes": 16})
    assert all(is_extrapolated(Geometry(**fields)) for fields in (*others, {"variant": "vta++"}))
    # Buffers are only as deep as the tiles require.
    assert not is_extrapolated(Geometry(acc_bytes=1 << 16))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{ROWS.index(row)}-{row.shape}")
def test_a_convolution_takes_the_hardwares_cycles_or_is_rejected_with_its_reason(row):
    recorded = row.plain
    if "rejected" in recorded:
        with pytest.raises(ConfigError, match=recorded["rejected"] or "does not divide"):
            row.program()
        return
    as_in_the_hardware(row, 0.001)


@pytest.mark.parametrize("row", BLOCKS, ids=lambda row: f"{BLOCKS.index(row)}-{row.shape}")
def test_a_convolution_takes_the_hardwares_cycles_with_other_blocks(row):
    assert not is_extrapolated(parse_shape(row.shape))
    as_in_the_hardware(row, 0.0025)


def test_cycles_with_other_blocks_are_those_of_the_hardware_in_the_median():
    errors = [abs(row.with_cycles()["cycles"] / row.plain["rtl_cycles"] - 1) for row in BLOCKS]
    assert median(errors) < 1e-4


def as_in_the_hardware(row, tolerance):
    recorded, program = row.plain, row.program()
    timeline = simulate(program.instructions, program.geometry)
    assert timeline.cycles == pytest.approx(recorded["rtl_cycles"], rel=tolerance)
    assert len(program.instructions) == recorded["instructions"]
    # The hardware's read counts include instructions, two beats each, eight per burst.
    assert timeline.read_beats + 2 * recorded["instructions"] == recorded["read_beats"]
    assert timeline.read_bursts - (-recorded["instructions"] // 8) == recorded["read_bursts"]
    assert (timeline.write_beats, timeline.write_bursts) == (recorded["write_beats"], recorded["write_bursts"])


def alone(instruction, geometry):
    """Return the cycles of an instruction without interference."""
    # The fetch is finished when the first of two ends.
    before = Load(Memory.UOP, 0, 0, 1, 8192, 8192, dependence=Dependence(push_prev=True, push_next=True))
    program = [before, Load(Memory.UOP), instruction, Finish()]
    if isinstance(instruction, Load) and instruction.memory in (Memory.INP, Memory.WGT):
        program[2] = instruction._replace(dependence=Dependence(pop_next=True))
    if isinstance(instruction, Store):
        program[2] = instruction._replace(dependence=Dependence(pop_prev=True))
    timeline = simulate(program, geometry)
    return timeline.end[2] - timeline.start[2]


WIDE = Geometry(bus_bytes=16)


@pytest.mark.parametrize(
    ("instruction", "geometry", "cycles"),
    [
        (Gemm(False, 0, 7, 5, 3), DEFAULT, 7 * 15 + 6),
        (Gemm(True, 0, 1, 14, 7), DEFAULT, 98 + 6),
        (Alu(AluOpcode.SHR, 0, 1, 1, 98, use_imm=True), DEFAULT, 98 + 6),
        (Alu(AluOpcode.ADD, 0, 1, 1, 98), DEFAULT, 2 * 98 + 6),
        (Load(Memory.UOP), DEFAULT, 1),
        (Load(Memory.UOP, 0, 0, 1, 1, 1), DEFAULT, 1 + 21),
        (Load(Memory.ACC, 0, 0, 1, 2, 2), DEFAULT, 16 + 22),
        (Load(Memory.WGT, 0, 0, 4, 9, 18), DEFAULT, 4 * 9 * 32 + 22),
        (Load(Memory.INP, 0, 0, 3, 5, 14), DEFAULT, 3 * 5 * 2 + 22),
        (Load(Memory.INP, 0, 0, 3, 5, 14), WIDE, 3 * 5 + 21),
        # Many border columns are written one by one, between the beats.
        (Load(Memory.INP, 0, 0, 8, 14, 14, 1, 0, 1, 1), DEFAULT, 8 * 28 + (9 * 16 - 8 * 14) + 2),
        # The last border rows wait for the data.
        (Load(Memory.INP, 0, 0, 56, 8, 56, 1, 1), DEFAULT, 56 * 16 + 1 + 22 + 8),
        (Store(0, 0, 1, 1, 1), DEFAULT, 6),
        (Store(0, 0, 1, 8, 8), DEFAULT, 27),
        (Store(0, 4, 1, 8, 8), DEFAULT, 15 + 15),
        (Store(0, 0, 2, 8, 8), WIDE, 2 * (4 + 8)),
    ],
)
def test_one_instruction_alone(instruction, geometry, cycles):
    assert alone(instruction, geometry) == cycles


def test_finish_alone_takes_the_hardwares_time():
    assert simulate([Finish()], DEFAULT).cycles == 25


def test_a_deadlock_names_waiting_instructions_and_tokens():
    program = [
        Load(Memory.INP, 0, 0, 1, 1, 1, dependence=Dependence(pop_next=True)),
        Gemm(True, 0, 1, dependence=Dependence(pop_prev=True)),
        Finish(),
    ]
    with pytest.raises(StreamError, match=r"deadlock: instruction 0 \(load\) waits for compute to load") as caught:
        simulate(program, DEFAULT)
    assert "instruction 1 (compute) waits for load to compute" in str(caught.value)


def test_a_full_queue_stalls_later_instructions():
    """The hardware fetches in order: a load after too many computations waits until there is room."""
    busy = [Gemm(True, 0, 100)] * 6
    load = Load(Memory.INP, 0, 0, 1, 1, 1)
    roomy, narrow = (simulate([*busy, load, Finish()], Geometry(queue_entries=entries)).start[6] for entries in (8, 2))
    assert roomy < 100 < 400 < narrow


@pytest.mark.slow
@pytest.mark.parametrize(("bus_bytes", "published"), [(8, 97e6), (16, 58e6), (32, 39e6), (64, 29e6)])
def test_the_published_widths_of_the_memory(bus_bytes, published):
    """ResNet-18's second convolution with tiles of one block and pixel, launched five times (apache/tvm-vta, PR 32)."""
    workload = Conv2d(1, 56, 56, 64, 64, (3, 3), padding=(1, 1, 1, 1))
    shift, *clip = SHIFT_AND_CLIP
    program = lower_conv2d(workload, Schedule(1, 1), Geometry(bus_bytes=bus_bytes), (shift, Bias(), *clip))
    assert 5 * simulate(program.instructions, program.geometry).cycles == pytest.approx(published, rel=0.03)
