"""The draws and counts of `benchmarks/gpu_engines.py`, with an engine that only counts."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from io import StringIO
from pathlib import Path

import pytest

import gpu_engines
from anole.space import ALGORITHM
from anole.testing.gpu_verdict import Outcome, Verdict
from gpu_engines import FIXED, LARGE, TARGET, draw


def test_every_template_takes_turns_with_valid_configs_of_fixed_and_random_layers() -> None:
    drawn = list(draw(list(FIXED), 4, 0))
    assert [kind for kind, _, _ in drawn] == 4 * list(FIXED)
    for at, (kind, workload, config) in enumerate(drawn):
        assert TARGET.space(workload).rejection(config) is None
        assert kind != "winograd" or config[ALGORITHM] == "winograd"
        assert (workload == FIXED[kind]) == (at // len(FIXED) % 2 == 0)
    assert drawn == list(draw(list(FIXED), 4, 0)) != list(draw(list(FIXED), 4, 1))


def test_layers_of_networks_take_the_place_of_all_others() -> None:
    drawn = list(draw(list(LARGE), 2, 0, large=True))
    assert [workload for _, workload, _ in drawn] == 2 * list(LARGE.values())
    assert all(TARGET.space(workload).rejection(config) is None for _, workload, config in drawn)


class Doubtful:
    """Calls every second candidate wrong."""

    def __init__(self):
        self.judged = 0

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        pass

    def judge(self, template, workload, config):
        self.judged += 1
        return Verdict(Outcome.WRONG, 0.5, "far\noff") if self.judged % 2 else Verdict(Outcome.RIGHT, 1e-7)


def test_every_verdict_is_a_row_and_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "counts.csv"
    monkeypatch.setattr(gpu_engines, "ENGINES", {"first": Doubtful, "second": Doubtful})
    monkeypatch.setattr(
        sys, "argv", ["gpu_engines.py", "--configs", "3", "--templates", "gemm,gemv", "--counts", str(path)]
    )
    gpu_engines.main()
    printed = capsys.readouterr()
    rows = list(csv.DictReader(StringIO(printed.out)))
    assert Counter((row["template"], row["engine"]) for row in rows) == dict.fromkeys(
        ((kind, engine) for kind in ("gemm", "gemv") for engine in ("first", "second")), 3
    )
    assert {(row["outcome"], row["error"], row["detail"]) for row in rows} == {
        ("wrong", "0.5", "far"),
        ("right", "1e-07", ""),
    }
    assert all(json.loads(row["config"]) and float(row["seconds"]) >= 0 for row in rows)
    wrong, right = list(Outcome).index(Outcome.WRONG), list(Outcome).index(Outcome.RIGHT)
    counted = {tuple(line.split()[:2]): line.split()[2:] for line in printed.err.splitlines()[1:]}
    assert [int(counted["gemm", "first"][at]) for at in (wrong, right)] == [3, 0]
    assert [int(counted["gemv", "second"][at]) for at in (wrong, right)] == [0, 3]
    written = {(row["template"], row["engine"]): row for row in csv.DictReader(path.open())}
    assert len(written) == 4
    assert [written["gemm", "first"][name] for name in ("configs", "wrong", "right")] == ["3", "3", "0"]


def test_nothing_begins_after_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_engines, "ENGINES", {"only": Doubtful})
    monkeypatch.setattr(sys, "argv", ["gpu_engines.py", "--minutes", "0"])
    gpu_engines.main()
    assert len(capsys.readouterr().out.splitlines()) == 1
