"""Networks and rivals beside busy neighbours: the benchmark itself on a tiny build."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.shared.neighbours import COLUMNS


@pytest.mark.slow
def test_builds_and_rivals_are_timed_beside_neighbours(benchmark: Callable[..., Any]) -> None:
    short = ("--rounds", "1", "--turn", "0")
    run = benchmark("shared.neighbours", "net", "elsewhere", "--neighbours", "0,1", "--rivals", "onnxruntime", *short)
    rows = list(csv.DictReader(run.stdout.splitlines()))
    assert tuple(rows[0]) == COLUMNS
    engines = [(row["engine"], row["neighbours"], row["runs"]) for row in rows]
    assert engines == [(name, count, "8") for count in "01" for name in ("anole", "onnxruntime")]
    for row in rows:
        assert (row["network"], row["batch"], row["threads"], row["rounds"]) == ("net", "2", "1", "1")
        assert 0 < float(row["p50_ms"]) <= float(row["p95_ms"]) <= float(row["p99_ms"])
    assert (rows[0]["p50_speedup"], rows[2]["p99_speedup"]) == ("1", "1")
    assert "elsewhere: was not timed: elsewhere/build.json: there is no such file" in run.stderr
