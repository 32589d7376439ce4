"""The commands `anole vta cycles` and `anole vta trace`, and their errors."""

import json
from pathlib import Path

import pytest

from anole.errors import TargetError
from anole_vta.geometry import DEFAULT, Geometry, Memory
from anole_vta.templates.schedules import parse_shape

from ...terminal import anole

DATA = Path(__file__).parents[1] / "data"
SCHEDULES, STREAM = DATA / "conv2d_rtl_cycles.json", DATA / "stream_conv14_64_32_k1_t7x14_ci4_co2.json"


def run(*arguments):
    return anole("vta", *arguments)


def test_cycles_prints_the_same_rows():
    asked = json.loads(SCHEDULES.read_text())
    rows_printed = json.loads(run("cycles", "--schedules", SCHEDULES).stdout)
    assert len(rows_printed) == len(asked)
    for row, answer in zip(asked, rows_printed, strict=True):
        assert ("rejected" in row) == ("rejected" in answer) != ("cycles" in answer)
        assert {**row, **answer} == {**answer, **({"rejected": answer["rejected"]} if "rejected" in row else {})}


def test_a_trace_has_start_and_end():
    rows = json.loads(STREAM.read_text())["rows"]
    rows_printed = json.loads(run("trace", STREAM, "--json").stdout)
    assert [(row["start"], row["end"]) for row in rows_printed] == [(row["exe_start"], row["exe_end"]) for row in rows]
    assert [row["module"][0].upper() for row in rows_printed] == [row["module"] for row in rows]
    lines = run("trace", STREAM).stdout.splitlines()
    assert lines[-1].split() == ["33", "compute", "7781", "7782", "FINISH"]
    assert "pop_next" in lines[1] and "memory=UOP" in lines[1]


@pytest.mark.parametrize(
    ("shape", "geometry"), [("16x16", DEFAULT), ("2x32x8", Geometry(2, 32, 8)), ("1x16x16_div1", DEFAULT)]
)
def test_names_of_shapes(shape, geometry):
    assert parse_shape(shape) == geometry


def test_a_divisor_makes_the_default_depths_less():
    geometry = parse_shape("32x32_div16")
    assert [geometry.depth(memory) * 16 for memory in Memory] == [DEFAULT.depth(memory) for memory in Memory]
    assert geometry.queue_entries == 32


@pytest.mark.parametrize("shape", ["16", "16x16x16x16", "16x16_div", "16x16_div0", "a"])
def test_invalid_shapes_are_refused(shape):
    with pytest.raises(TargetError, match="allowed is"):
        parse_shape(shape)


def change_row(rows, number, **fields):
    rows = [dict(row) for row in rows]
    rows[number] |= fields
    return rows


ROWS = json.loads(SCHEDULES.read_text())[:2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("{}", "is not a list of schedules"),
        (json.dumps([{}]), "row 0: has no workload, or no shape"),
        (json.dumps(change_row(ROWS, 1, tile_h=0)), "row 1: tile_h is 0; allowed is an integer >= 1"),
        (json.dumps(change_row(ROWS, 1, workload={"h": 1})), "row 1: w is None"),
        (
            json.dumps(change_row(ROWS, 0, workload=ROWS[0]["workload"] | {"pad": -1})),
            "pad is -1; allowed is an integer >= 0",
        ),
        (json.dumps(change_row(ROWS, 0, shape="17x16")), "geometry.block_in: found 17; allowed is a power of two"),
    ],
)
def test_bad_schedules_get_one_message(tmp_path, content, message):
    path = tmp_path / "schedules.json"
    path.write_text(content)
    result = run("cycles", "--schedules", path)
    assert result.exit_code == 2 and message in result.stderr and len(result.stderr.splitlines()) == 1


def test_a_kernel_larger_than_its_image_is_rejected(tmp_path):
    path = tmp_path / "schedules.json"
    small = ROWS[0]["workload"] | {"h": 2, "w": 2, "pad": 0, "stride": 1}
    path.write_text(json.dumps(change_row(ROWS[:1], 0, workload=small, tile_h=1, tile_w=1)))
    assert json.loads(run("cycles", "--schedules", path).stdout)[0]["rejected"] == "tile_h 1 does not divide 0"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"hex": "1" + 32 * "0"}], "instruction 0: an instruction has 128 bits"),
        ([{"hex": "07"}], "instruction 0: unknown opcode 7"),
        ([{"hex": "03"}, {"hex": "zz"}], "instruction 1: has no hex"),
        ([{}], "instruction 0: has no hex"),
        ([{"hex": f"{1 << 64 | 2 << 80 | 2047 << 10 | 2 << 7:032x}"}], "instruction 0: INP holds 2048 elements"),
        ([{"hex": "00"}], "does not end with FINISH"),
        ([], "does not end with FINISH"),
        ([{"hex": f"{1 << 3 | 2:032x}"}, {"hex": "03"}], "deadlock: instruction 0 (compute) waits for load to compute"),
        (None, "is not a stream"),
    ],
)
def test_bad_streams_get_one_message(tmp_path, rows, message):
    path = tmp_path / "stream.json"
    path.write_text(json.dumps({"rows": rows}))
    result = run("trace", path)
    assert result.exit_code == 2 and message in result.stderr and len(result.stderr.splitlines()) == 1
