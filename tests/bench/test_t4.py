"""Spaces that others measured: T1 and T4 files, and caches of Kernel Tuner."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anole.bench import Problem, load
from anole.bench.spaces import make_space
from anole.bench.t4 import write_parquet, write_t4
from anole.errors import StoreError
from anole.record import Status
from anole.space import Space, option_knob, split_knob

T1 = {
    "General": {"BenchmarkName": "copy"},
    "ConfigurationSpace": {
        "TuningParameters": [
            {"Name": "width", "Type": "int", "Values": "[1, 2, 4]", "Default": 1},
            {"Name": "order", "Type": "string", "Values": "['row', 'column']", "Default": "row"},
        ],
        "Conditions": [{"Expression": "width < 4 or order == 'row'", "Parameters": ["width", "order"]}],
    },
}


def result(width: int, order: str, runs_ms: list[float], invalidity: str = "correct") -> dict[str, Any]:
    times = {"compilation": 12.0, "runtimes": runs_ms} if runs_ms else {"compilation": 12.0}
    value: Any = sum(runs_ms) / len(runs_ms) if runs_ms else "RuntimeFailedConfig"
    return {
        "configuration": {"width": width, "order": order},
        "times": times,
        "invalidity": invalidity,
        "correctness": int(not invalidity),
        "measurements": [{"name": "time", "value": value, "unit": ""}, {"name": "GFLOP/s", "value": 3.0, "unit": ""}],
        "objectives": ["time"],
    }


RESULTS = [
    result(1, "row", [4.0, 6.0]),
    result(1, "column", [3.0, 3.0]),
    result(2, "row", [], "compile"),
    result(4, "row", [2.0, 2.5]),
    result(2, "column", [], "constraints"),
]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The path of a T4 file of two devices' results, with a T1 file next to it."""
    (tmp_path / "copy-T1.json").write_text(json.dumps(T1))
    (tmp_path / "co-T1.json").write_text("{}")
    plain = {"results": RESULTS, "schema_version": "1.0.0", "metadata": {"timeunit": "miliseconds"}}
    path = tmp_path / "copy-A100_T4.json.gz"
    path.write_bytes(gzip.compress(json.dumps(plain).encode()))
    return path


def test_a_t4_file_is_a_problem(written: Path) -> None:
    problem = load(written)
    assert problem.name == "copy-A100" and len(problem.latencies_s) == 4
    found = {}
    for vector in problem.space.vectors(problem.space.all_valid_indices):
        config = problem.space.config(vector)
        (measured,) = problem.measure([config])
        found[config["width"], config["order"]] = measured
        assert problem.evaluate(config) == pytest.approx(measured.latency_s or float("inf"))
    latencies_ms = {key: each.latency_s and 1e3 * each.latency_s for key, each in found.items()}
    expected_ms = {(1, "row"): 5, (1, "column"): 3, (2, "row"): None, (4, "row"): 2.25}
    assert latencies_ms == pytest.approx(expected_ms)
    assert found[2, "row"].status is Status.BUILD_ERROR and "compile" in str(found[2, "row"].error)
    assert problem.optimum == pytest.approx(2.25e-3)
    assert problem.runs_s({"width": 4, "order": "row"}) == [2e-3, 2.5e-3]
    assert problem.space.rejection({"width": 2, "order": "column"}) == "it has no result"
    assert str(problem.space.rejection({"width": 4, "order": "column"})).startswith("it violates `width < 4")


def test_a_cache_file_of_kernel_tuner_is_a_problem(tmp_path: Path) -> None:
    entries = {
        "1,row": {"width": 1, "order": "row", "time": 5.0, "times": [4.0, 6.0]},
        "2,row": {"width": 2, "order": "row", "time": "CompilationFailedConfig"},
        "2,column": {"width": 2, "order": "column", "time": "InvalidConfig"},
    }
    values = {"width": [1, 2], "order": ["row", "column"]}
    (tmp_path / "copy.json").write_text(json.dumps({"device_name": "any", "tune_params": values, "cache": entries}))
    problem = load(str(tmp_path / "copy.json"))
    assert len(problem.latencies_s) == 2 and problem.optimum == 5e-3
    assert problem.runs_s({"width": 1, "order": "row"}) == [4e-3, 6e-3]
    assert next(problem.measure([{"width": 2, "order": "row"}])).status is Status.BUILD_ERROR


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"results": [{"times": {}}]}, r"is not a T4 file \(KeyError: 'configuration'"),
        ({"results": [result(3, "row", [1.0])]}, "knob width has no value 3"),
        ({"results": RESULTS[2:3]}, "none of its configs has a result"),
        ({"metadata": {"timeunit": "days"}}, "is not a T4 file"),
    ],
)
def test_another_file_is_refused(written: Path, change: dict[str, Any], message: str) -> None:
    plain = {"results": RESULTS, "schema_version": "1.0.0", "metadata": {"timeunit": "miliseconds"}}
    written.write_bytes(json.dumps({**plain, **change}).encode())
    with pytest.raises(StoreError, match=message):
        load(written)


def test_a_t4_file_needs_its_t1_file(written: Path) -> None:
    for path in written.parent.glob("*T1.json"):
        path.unlink()
    with pytest.raises(StoreError, match=r"has no T1 file next to it, such as copy-A100-T1\.json"):
        load(written)


@pytest.fixture
def priced() -> Problem:
    """A problem with a split, a discount, equal programs, and failures of two kinds."""
    knobs = [split_knob("tile", 6, 2), option_knob("size", [1, 2, 3])]
    constraint = make_space({"size": [1]}, ["size < 3"]).constraints
    space = Space(
        knobs,
        constraint,
        discount=lambda columns: 1 / columns["size"],
        merit=lambda columns: 1.0 * columns["size"],
        programs=lambda columns: columns["tile"],
    )
    latencies_s = np.array([1e-3, 2e-3, np.nan, np.nan, 5e-3, 6e-3, 7e-3, 8e-3])
    return Problem("family/priced", space, latencies_s, None, ["", "", "compile", "", "", "", "", ""])


def test_a_problem_written_as_t4_is_read_back(priced: Problem, tmp_path: Path) -> None:
    t1, t4 = write_t4(priced, tmp_path / "new")
    assert (t1.name, t4.name) == ("family-priced-T1.json", "family-priced_T4.json.gz")
    found = load(t4)
    vectors = priced.space.vectors(priced.space.all_valid_indices)
    assert found.space.size == priced.space.size == 12 and len(found.latencies_s) == len(vectors) == 8
    for vector in vectors:
        config = priced.space.config(vector)
        written = {**config, "tile": "x".join(map(str, config["tile"]))}
        assert found.evaluate(written) == pytest.approx(priced.evaluate(config))
    assert next(found.measure([{"tile": "3x2", "size": 1}])).status is Status.BUILD_ERROR


def test_a_written_t4_file_follows_the_schema(priced: Problem, tmp_path: Path) -> None:
    t1, t4 = (
        json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        for data in (path.read_bytes() for path in write_t4(priced, tmp_path))
    )
    parameters = {each["Name"]: (each["Type"], each["Values"]) for each in t1["ConfigurationSpace"]["TuningParameters"]}
    assert parameters == {"tile": ("string", "['1x6', '2x3', '3x2', '6x1']"), "size": ("int", "[1, 2, 3]")}
    assert t4["schema_version"] == "1.0.0" and t4["metadata"] == {"timeunit": "milliseconds"}
    assert [each["invalidity"] for each in t4["results"]] == ["correct"] * 2 + ["compile", "runtime"] + ["correct"] * 4
    last = t4["results"][-1]
    assert last["configuration"] == {"tile": "6x1", "size": 2} and last["correctness"] == 1
    assert last["times"]["runtimes"] == [8.0] and last["objectives"] == ["cost"]
    assert {each["name"]: each["value"] for each in last["measurements"]} == {"cost": 16.0, "time": 8.0}
    schemas = pytest.importorskip("kernel_tuner.file_utils", reason="pip install 'anole[bench]'")
    validate = pytest.importorskip("jsonschema").validate
    validate(t1, schemas.input_file_schema()[1])
    validate(t4, schemas.output_file_schema("results")[1])


def test_a_parquet_file_has_every_config(priced: Problem, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install 'anole[bench]'")
    (path,) = write_parquet(priced, tmp_path)
    rows = parquet.read_table(path).to_pylist()
    assert len(rows) == 12 and sum(row["valid"] for row in rows) == 8
    nothing = dict.fromkeys(("program", "latency_s", "cost_s", "merit"))
    assert rows[-1] == {"tile": "6x1", "size": 3, "valid": False, **nothing}
    measured = {"program": 1, "latency_s": 6e-3, "cost_s": 12e-3, "merit": 2}
    assert rows[5] == {"tile": "2x3", "size": 2, "valid": True, **measured}
    assert rows[2]["valid"] and rows[2]["cost_s"] is None and rows[2]["program"] == 2
