"""Reports on programs: utilization, timeline plot, and the command."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from anole.task import Conv2d
from anole_vta.geometry import DEFAULT, Geometry
from anole_vta.network.network import Pool
from anole_vta.network.pool import lower_pool
from anole_vta.report import draw_timeline, summarize, utilization
from anole_vta.simulator.timing import simulate
from anole_vta.templates.conv2d import Schedule, lower_conv2d

from ..terminal import anole

SCHEDULES = Path(__file__).parent / "data/conv2d_rtl_cycles.json"
LAYER = Conv2d(1, 14, 14, 64, 32, (3, 3), padding=(1, 1, 1, 1))


@pytest.fixture
def program():
    return lower_conv2d(LAYER, Schedule(7, 14, 1, 2), DEFAULT)


def test_utilization_counts_the_work_of_the_layer(program):
    timeline = simulate(program.instructions, DEFAULT)
    used = utilization(program, timeline)
    assert 2 * 256 * used.operations == LAYER.flop
    assert 0 < used.gemm_share < 1
    assert all(0 < cycles < used.cycles for cycles in used.busy.values())
    # All data that is read or written passes the bus at least once.
    weights, data, out = 9 * 64 * 32, 14 * 14 * 64, 14 * 14 * 32
    assert used.write_bytes == out and used.read_bytes > weights + data
    assert used.reached <= used.attainable <= used.peak == 256
    assert used.reached == LAYER.flop / 2 / timeline.cycles
    assert used.intensity == LAYER.flop / 2 / (used.read_bytes + used.write_bytes)


def test_the_timeline_shows_every_long_instruction(program):
    timeline = simulate(program.instructions, DEFAULT)
    for until in (None, 500):
        picture = ElementTree.fromstring(draw_timeline(program.instructions, timeline, until))
        titles = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
        shown = [
            number
            for number, (start, end) in enumerate(zip(timeline.start, timeline.end, strict=True))
            if end > start + 1 and start < (until or timeline.cycles)
        ]
        assert sorted(int(title.split(":")[0]) for title in titles) == shown


def test_cycles_without_a_hardware_comparison_are_called_extrapolated(program):
    wide = lower_conv2d(LAYER, Schedule(7, 14), Geometry(1, 32, 32))
    unknown = lower_conv2d(LAYER, Schedule(7, 14), Geometry(1, 64, 32))
    printed = [summarize(each)[0].splitlines()[1] for each in (program, wide, unknown)]
    assert all(line.startswith("cycles") for line in printed)
    assert [line.endswith("extrapolated") for line in printed] == [False, False, True]


def test_a_pooling_is_reported_without_multiplications():
    pool = Pool("pool", (2, 2), (2, 2), (0, 0, 0, 0), "x", "y", 0)
    printed, _ = summarize(lower_pool(pool, (1, 8, 8, 16), Geometry(variant="vta++")))
    assert "0.0  multiply-adds per cycle, 0.0% of what the memory bus allows" in printed


def run(*arguments):
    return anole("vta", "report", "--schedules", SCHEDULES, *arguments)


def test_the_command_reports_and_draws(tmp_path):
    picture = tmp_path / "pictures/timeline.svg"
    printed = run("--row", 5, "--picture", picture)
    cycles = json.loads(SCHEDULES.read_text())[5]["rtl_cycles"]
    assert printed.exit_code == 0 and f"cycles        {cycles:12}" in printed.stdout
    assert "of what the memory bus allows" in printed.stdout or "of what the GEMM core allows" in printed.stdout
    assert picture.read_text().startswith("<svg")


@pytest.mark.parametrize(("row", "message"), [(70, "has no row 70; its rows are 0 to 69"), (69, "scratchpad overflow")])
def test_errors_have_one_message(row, message):
    printed = run("--row", row)
    assert printed.exit_code == 2 and message in printed.stderr and not printed.stdout
