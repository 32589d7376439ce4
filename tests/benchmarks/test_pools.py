"""Threads of builds beside TVM's: the benchmark itself on a tiny build."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.shared.pools import COLUMNS


@pytest.mark.slow
def test_builds_are_compared_with_the_same_on_tvms_threads(benchmark: Callable[..., Any]) -> None:
    run = benchmark("shared.pools", "net", "elsewhere", "--processes", "1", "--rounds", "1")
    (row,) = csv.DictReader(run.stdout.splitlines())
    assert tuple(row) == COLUMNS
    assert (row["network"], row["threads"], row["processes"], row["rounds"]) == ("net", "1", "1", "1")
    own_ms, tvm_ms, speedup = (float(row[name]) for name in ("own_ms", "tvm_ms", "speedup"))
    assert abs(speedup - tvm_ms / own_ms) < 1e-2
    assert "elsewhere: was not timed" in run.stderr
