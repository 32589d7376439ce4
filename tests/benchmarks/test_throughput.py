"""Several networks at once: the benchmark itself on a tiny build."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.shared.throughput import COLUMNS


@pytest.mark.slow
def test_instances_and_pairs_of_builds_are_compared(benchmark: Callable[..., Any]) -> None:
    short = ("--rounds", "1", "--turn", "0", "--instances", "2")
    run = benchmark("shared.throughput", "net", "--rivals", "onnxruntime", *short)
    rows = list(csv.DictReader(run.stdout.splitlines()))
    assert tuple(rows[0]) == COLUMNS
    assert [(row["case"], row["networks"], row["instances"], row["engine"]) for row in rows] == [
        (case, networks, instances, engine)
        for case, networks, instances in (("instances", "net", "2"), ("processes", "net+net", "1"))
        for engine in ("anole", "onnxruntime")
    ]
    assert all(float(row["runs_per_s"]) > 0 and float(row["speedup"]) > 0 for row in rows)
    assert rows[0]["speedup"] == rows[2]["speedup"] == "1"
