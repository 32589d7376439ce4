"""How often a planted slowdown is found: the benchmark itself on a tiny build, for a moment."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any

import pytest

from anole.evaluate.engines import Engine
from benchmarks.shared.power import COLUMNS, start_longer


def test_a_build_is_compared_with_its_copy_and_a_slower_one(benchmark: Callable[..., Any]) -> None:
    run = benchmark("shared.power", "net", "--trials", "1", "--planted", "0,50", "--seconds", "1")
    rows = list(csv.DictReader(run.stdout.splitlines()))
    assert tuple(rows[0]) == COLUMNS
    assert [(row["planted_percent"], row["trial"], row["neighbours"]) for row in rows] == [
        ("0", "0", "1"),
        ("50", "0", "1"),
    ]
    same, slower = (float(row["change_percent"]) for row in rows)
    assert slower > same and all(int(row["rounds"]) > 0 for row in rows)


def test_what_is_planted_is_busy_for_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[float] = []
    monkeypatch.setattr("benchmarks.shared.power.start_deployed", lambda folder: Engine("build", lambda: "found", list))
    monkeypatch.setattr("benchmarks.shared.power._fastest_s", lambda run: 2.0)
    monkeypatch.setattr("benchmarks.shared.power._work", worked.append)
    for share, seconds in ((0.5, 1.0), (0.0, 0.0)):
        assert start_longer(None, share).run() == "found"  # type: ignore[arg-type]
        assert worked[-1] == seconds
