"""Runs: scores, resumption, and the leaderboard."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from anole.bench import Objective, Problem, load
from anole.bench.optimizers import find_optimizer
from anole.bench.runs import COLUMNS, leaderboard, read_runs, run_all, score_of
from anole.bench.spaces import make_space
from anole.errors import StoreError
from anole.search.loop import TUNER_VERSION

PROBLEM = "vta/25088-4096_k1x1_s1_1x1"
"""A problem of few configs."""


def test_a_score_is_the_mean_share_of_random_searchs_gap() -> None:
    """The median is 3. The best of n random trials costs 1, 2, or at least 3; counting gives the probabilities."""
    costs_s = np.array([3.0, 1.0, np.nan, 5.0, 2.0, 4.0])
    problem = Problem("six", make_space({"x": range(6)}), costs_s)
    random_s = [15 / 6, 31 / 15, 34 / 20, 21 / 15, 7 / 6]
    assert problem.random_curve(5).tolist() == pytest.approx(random_s)
    assert score_of(problem, [1.0], 5) == pytest.approx(1.0)
    assert score_of(problem, [math.inf, 2.0, 1.0], 3) == pytest.approx((-0.5 / 1.5 + 1 / 16 + 1) / 3)
    assert score_of(problem, [5.0], 2) == pytest.approx((-0.5 / 1.5 - 14 / 16) / 2), "as the median"
    # After six trials, random search is at the optimum, so later trials do not count.
    assert score_of(problem, [1.0], 6) == pytest.approx(score_of(problem, [1.0], 100)) == pytest.approx(1.0)


def test_random_search_scores_zero_on_average() -> None:
    costs_s = np.random.default_rng(0).lognormal(size=400)
    problem, scores = Problem("random", make_space({"x": range(20), "y": range(20)}), costs_s), []
    for seed in range(60):
        objective = Objective(problem, 16)
        find_optimizer("random")(objective, seed)
        scores.append(score_of(problem, objective.costs_s, 16))
    assert abs(np.mean(scores)) < 3 * np.std(scores) / math.sqrt(60)


def test_a_file_of_runs_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    assert read_runs(path) == []
    lines = list(run_all(["random", "autotvm"], [PROBLEM], 8, 1, path))
    assert [line.partition(",")[0] for line in lines] == [
        f"{n + 1} of 2: {each} on {PROBLEM}" for n, each in enumerate(["random", "autotvm"])
    ]
    first = read_runs(path)
    assert len(list(run_all(["random"], [PROBLEM], 8, 2, path))) == 1 and read_runs(path)[:2] == first
    with path.open("a") as file:
        file.write(f"{PROBLEM},random,7,8,4,0.5,1.5,0,0.01,1:2.5 2:1.")  # half-written
    assert list(run_all(["random"], [PROBLEM], 8, 2, path)) == [] and len(read_runs(path)) == 3
    # Runs with another budget replace the ones with the same seed.
    assert len(list(run_all(["random"], [PROBLEM], 4, 1, path))) == 1
    rows = read_runs(path)
    assert sorted((row["optimizer"], row["seed"], row["trials"]) for row in rows) == [
        ("autotvm", "0", "8"),
        ("random", "0", "4"),
        ("random", "1", "8"),
    ]
    assert {row["version"] for row in rows} == {str(TUNER_VERSION)}
    problem, objective = load(PROBLEM), Objective(load(PROBLEM), 4)
    find_optimizer("random")(objective, 0)
    (row,) = [row for row in rows if row["trials"] == "4"]
    best_s = min(problem.median, *objective.costs_s)
    assert float(row["ratio"]) == pytest.approx(best_s / problem.optimum, abs=1e-5)
    assert row["curve"].split()[-1].endswith(f":{best_s / problem.optimum:.4f}")


def test_a_failed_run_is_reported_and_has_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anole.bench.runs.find_optimizer", lambda name: lambda objective, seed: 1 / 0)
    (line,) = run_all(["random"], [PROBLEM], 8, 1, tmp_path / "runs.csv")
    assert line == f"1 of 1: random on {PROBLEM}, seed 0: failed: ZeroDivisionError: division by zero"
    assert read_runs(tmp_path / "runs.csv") == []


def test_another_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(StoreError, match="is not a file of `anole bench run`; its columns are a, b"):
        list(run_all(["random"], [PROBLEM], 8, 1, path))
    assert path.read_text() == "a,b\n1,2\n"


def row(optimizer: str, problem: str, seed: int, score: float, **columns: Any) -> dict[str, str]:
    plain = {"optimizer": optimizer, "problem": problem, "seed": seed, "score": score, "ratio": 2.0, "cpu_s": 1.5}
    return dict.fromkeys(COLUMNS, "") | {name: str(value) for name, value in (plain | columns).items()}


def test_the_leaderboard_is_over_common_problems_with_equal_weight() -> None:
    rows = [row("good", "a", seed, 0.8) for seed in range(4)] + [row("good", "b", 0, 0.4, ratio=8.0)]
    rows += [row("bad", "a", 0, 0.1), row("bad", "b", 0, -0.3), row("bad", "c", 0, 1.0)]
    good, bad = leaderboard(rows)
    assert (good.optimizer, good.n_runs, good.score) == ("good", 5, pytest.approx(0.6))
    assert (good.low, good.high) == pytest.approx(stats.t.interval(0.95, 1, 0.6, stats.sem([0.8, 0.4])))
    assert good.ratio == pytest.approx(4.0) and good.cpu_s == pytest.approx(1.5)
    assert (bad.optimizer, bad.n_runs, bad.score) == ("bad", 2, pytest.approx(-0.1))
    assert leaderboard([]) == [] == leaderboard([row("good", "a", 0, 1), row("bad", "b", 0, 1)])
