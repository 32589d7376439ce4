"""Runs of optimizers on problems: their scores, a resumable file with a row for each run, and a leaderboard."""

from __future__ import annotations

import csv
import io
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anole.bench.ask_tell import Objective
from anole.bench.optimizers import find_optimizer
from anole.bench.problem import Problem
from anole.bench.tables import find, load
from anole.errors import StoreError, cause
from anole.files import write_atomically
from anole.search.loop import TUNER_VERSION
from anole.search.presets import PRESETS

KEYS = ("problem", "optimizer", "seed", "trials", "version")
COLUMNS = (*KEYS, "score", "ratio", "failed", "cpu_s", "curve")

_MIN_RANDOM_GAP = 0.05
"""Trials count for the score while random search's expected gap is above this share of the median's gap."""

Row = Mapping[str, str]


@dataclass(frozen=True)
class Standing:
    """An optimizer's mean score over problems and seeds, with a 95 % confidence interval."""

    optimizer: str
    score: float
    low: float
    high: float
    ratio: float
    cpu_s: float
    n_runs: int


def best_costs(problem: Problem, costs_s: Sequence[float], n_trials: int) -> NDArray[np.float64]:
    """Return the best cost after each of n trials, shape (n_trials,), at most the median of the problem.

    After the last trial of a search that ended early, its best cost stays.
    """
    padded = np.full(n_trials, np.inf)
    padded[: len(costs_s)] = costs_s[:n_trials]
    return np.minimum.accumulate(np.fmin(padded, problem.median))


def score_of(problem: Problem, costs_s: Sequence[float], n_trials: int) -> float:
    """Return the share of the gap between random search's expected cost and the optimum that a search closes.

    It is averaged over at most `n_trials` trials: those before random search has closed 95 % of the median's gap. 1 is
    the optimum from the first trial, 0 the expectation of random search (`Problem.random_curve`); below 0 is worse.
    """
    random_s, best_s = problem.random_curve(n_trials), best_costs(problem, costs_s, n_trials)
    gaps_s = random_s - problem.optimum
    n_scored = max(1, int((gaps_s > _MIN_RANDOM_GAP * (problem.median - problem.optimum)).sum()))
    return float(((random_s - best_s)[:n_scored] / gaps_s[:n_scored]).mean())


def run_all(
    optimizers: Sequence[str], problems: Sequence[str], n_trials: int, n_seeds: int, path: Path, n_processes: int = 1
) -> Iterator[str]:
    """Add the missing runs of optimizers on problems to a file, and yield a line of progress for each.

    Raises:
        OptimizerError: an optimizer is unknown, or its package is not installed.
        StoreError: a problem does not exist.
    """
    for name in optimizers:
        find_optimizer(name)
    for name in problems:
        find(name)
    jobs = [
        (problem, optimizer, str(seed), str(n_trials), _version_of(optimizer))
        for problem in problems
        for seed in range(n_seeds)
        for optimizer in optimizers
    ]
    done = {tuple(row[key] for key in KEYS) for row in _drop_stale_rows(path, {job[:3]: job for job in jobs})}
    missing = [job for job in jobs if job not in done]
    with ProcessPoolExecutor(n_processes, get_context("fork"), _use_one_thread) as pool:
        running = {pool.submit(_run, *job[:4]): job for job in missing}
        for number, future in enumerate(as_completed(running), 1):
            job = running[future]
            line = f"{number} of {len(missing)}: {job[1]} on {job[0]}, seed {job[2]}"
            try:
                row = dict(zip(KEYS, job, strict=True)) | future.result()
            except Exception as error:
                yield f"{line}: failed: {cause(error)}"
            else:
                with path.open("a", encoding="utf-8") as file:
                    file.write(_format_rows([row]))
                yield f"{line}: score {row['score']}"


def read_runs(path: Path) -> list[Row]:
    """Return the complete rows of a file of runs; none if it does not exist.

    Raises:
        StoreError: it is another file.
    """
    if not path.exists():
        return []
    rows: list[Row] = list(csv.DictReader(path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()))
    if rows and tuple(rows[0]) != COLUMNS:
        raise StoreError(f"{path}: is not a file of `anole bench run`; its columns are {', '.join(rows[0])}")
    return rows


def leaderboard(rows: Iterable[Row]) -> list[Standing]:
    """Return the standing of each optimizer on the problems that all of them have runs on, best first.

    The interval is Student's, over the means of problems, or over the seeds of a single problem; NaN for a single run.
    """
    from scipy.special import stdtrit

    runs: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        runs.setdefault(row["optimizer"], {}).setdefault(row["problem"], []).append(row)
    common = sorted(set.intersection(*map(set, runs.values()))) if runs else []
    standings = []
    for optimizer, by_problem in runs.items() if common else ():
        scores, ratios = ([_column(by_problem[name], column) for name in common] for column in ("score", "ratio"))
        means = np.array([each.mean() for each in scores])
        values, score = means if len(means) > 1 else scores[0], float(means.mean())
        error = float(values.std() / math.sqrt(max(1, len(values) - 1)) * stdtrit(len(values) - 1, 0.975))
        ratio = math.exp(np.mean([np.log(each).mean() for each in ratios]))
        cpu_s = np.concatenate([_column(by_problem[name], "cpu_s") for name in common])
        standings.append(Standing(optimizer, score, score - error, score + error, ratio, cpu_s.mean(), len(cpu_s)))
    return sorted(standings, key=lambda each: -each.score)


def _column(rows: Iterable[Row], name: str) -> NDArray[np.float64]:
    return np.array([float(row[name]) for row in rows])


def _run(problem_name: str, optimizer: str, seed: str, trials: str) -> dict[str, str]:
    """Run an optimizer once; ``curve`` has the trials that improved, each with its cost relative to the optimum."""
    problem, n_trials = load(problem_name), int(trials)
    objective, began_s = Objective(problem, n_trials), time.process_time()
    find_optimizer(optimizer)(objective, int(seed))
    cpu_s = time.process_time() - began_s
    ratios = best_costs(problem, objective.costs_s, n_trials) / problem.optimum
    steps = [0, *(np.flatnonzero(np.diff(ratios)) + 1)]
    return {
        "score": f"{score_of(problem, objective.costs_s, n_trials):.4f}",
        "ratio": f"{ratios[-1]:.5f}",
        "failed": str(sum(not np.isfinite(each) for each in objective.costs_s)),
        "cpu_s": f"{cpu_s:.2f}",
        "curve": " ".join(f"{step + 1}:{ratios[step]:.4f}" for step in steps),
    }


def _drop_stale_rows(path: Path, jobs: Mapping[tuple[str, ...], tuple[str, ...]]) -> list[Row]:
    """Rewrite a file without half-written and outdated rows; return the remaining rows."""
    rows = read_runs(path)
    valid_rows = [row for row in rows if (key := tuple(row[each] for each in KEYS)) == jobs.get(key[:3], key)]
    write_atomically(path, ",".join(COLUMNS) + "\n" + _format_rows(valid_rows))
    return valid_rows


def _format_rows(rows: Iterable[Row]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, COLUMNS, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _version_of(optimizer: str) -> str:
    if optimizer in PRESETS:
        return str(TUNER_VERSION)
    with suppress(PackageNotFoundError):
        return version(optimizer.partition(":")[0])
    return ""


def _use_one_thread() -> None:
    """Keep parallel runs from competing for cores."""
    from threadpoolctl import threadpool_limits

    os.environ["OMP_NUM_THREADS"] = "1"
    threadpool_limits(1)
