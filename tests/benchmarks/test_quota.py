"""Engines within a quota: the benchmark itself on a tiny build."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any

import pytest

from anole.errors import AnoleError
from benchmarks.shared.quota import COLUMNS, limited_group


@pytest.mark.slow
def test_engines_are_compared_within_a_quota(benchmark: Callable[..., Any]) -> None:
    try:
        with limited_group(1.0) as group:
            assert group.is_dir()
    except AnoleError as error:
        pytest.skip(str(error))
    run = benchmark("shared.quota", "net", "--rounds", "1", "--turn", "0")
    rows = list(csv.DictReader(run.stdout.splitlines()))
    assert tuple(rows[0]) == COLUMNS
    assert [(row["engine"], row["threads"]) for row in rows] == [
        *(("anole", threads) for threads in ("own", "1")),
        ("onnxruntime", "1"),
    ]
    assert not group.exists()
