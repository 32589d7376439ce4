"""The report of the search methods, made of raw files with known answers."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.search.tuners_raw import ITERATION, ITERATIONS, RUN, TRIAL, TRIALS, write
from benchmarks.search.tuners_report import report


def run(variant: str, seed: int, seconds_each: float, finds: Sequence[tuple[int, float]], n_trials: int) -> list[dict]:
    """Returns the trials of a run whose latency is its confirmed ratio, falls at some trials, and rises else.

    Args:
        finds: from which trial on, counted from 1, the fastest has which ratio.
    """
    latency = {start: ratio for start, ratio in finds}
    return [
        {
            **{"layer": "L1", "variant": variant, "seed": seed, "number": number - 1, "iteration": (number - 1) // 64},
            **{"elapsed_s": number * seconds_each, "latency_s": latency.get(number, 9.0), "ratio": latency.get(number)},
            **{"status": "ok", "cv": 0.1, "repeats": 3, "build_s": 0.1, "run_s": 0.01},
        }
        for number in range(1, n_trials + 1)
    ]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    trials = [
        *run("autotvm", 0, 1.0, [(1, 2.0), (100, 1.25), (180, 1.03), (400, 1.0)], 500),
        *run("autotvm", 1, 1.0, [(1, 2.0), (150, 1.25)], 256),
        *run("random", 0, 0.5, [(1, 4.0), (64, 2.0)], 256),
        *run("chameleon", 0, 0.5, [(1, 2.0), (50, 1.0)], 256),
        *run("chameleon", 1, 0.5, [(1, 2.0), (70, 1.0)], 256),
    ]
    trials[0] |= {"status": "run_error", "latency_s": None, "ratio": None}
    iterations = [
        {"layer": "L1", "variant": "chameleon", "seed": 0, "iteration": number, "search_s": number, "steps": 100}
        for number in range(9)
    ]
    write(folder / TRIALS, (*RUN, *TRIAL), trials)
    write(folder / ITERATIONS, (*RUN, *ITERATION), iterations)
    report(folder)
    return folder


def table(path: Path, *columns: str) -> dict[tuple[str, ...], dict[str, str]]:
    with path.open() as file:
        return {tuple(row[column] for column in columns): row for row in csv.DictReader(file)}


def test_what_every_run_came_to(results: Path) -> None:
    runs = table(results / "tuners_runs.csv", "variant", "seed")
    autotvm, random, chameleon = runs["autotvm", "0"], runs["random", "0"], runs["chameleon", "0"]
    assert (autotvm["trials_to_95%"], autotvm["seconds_to_95%"]) == ("180", "180")
    assert (autotvm["trials_to_98%"], autotvm["seconds_to_98%"]) == ("", "")
    assert {autotvm["batch_median"], autotvm["batch_upper_quartile"]} == {"64"}
    assert {autotvm["repeats_lower_quartile"], autotvm["repeats_median"]} == {"3"}
    assert (chameleon["trials_to_98%"], chameleon["seconds_to_98%"]) == ("50", "25")
    assert [float(random[f"quality_at_{n}"]) for n in (64, 128, 192)] == [0.5, 0.5, 0.5]
    assert [float(autotvm[f"quality_at_{n}"]) for n in (128, 192)] == [0.8, pytest.approx(1 / 1.03, abs=1e-4)]
    assert float(random["quality_in_autotvm_s_of_64"]) == 0.5
    assert float(chameleon["quality_in_autotvm_s_of_64"]) == 1.0
    assert (autotvm["trials"], float(autotvm["invalid_share"])) == ("192", pytest.approx(1 / 192, abs=1e-5))
    assert (chameleon["iterations"], chameleon["search_s"], chameleon["steps"]) == ("3", "1", "100")
    assert (float(chameleon["run_s"]), float(chameleon["build_s"])) == (1.92, 19.2)


def test_what_every_tuner_came_to(results: Path) -> None:
    variants = table(results / "tuners_variants.csv", "variant", "figure")
    to_95 = variants["autotvm", "trials_to_95%"]
    assert (to_95["runs"], to_95["reached"], to_95["lower_quartile"], to_95["upper_quartile"]) == ("2", "1", "180", "")
    assert variants["chameleon", "trials_to_95%"]["median"] == "50"
    assert float(variants["chameleon", "trials_to_95%"]["autotvm_over_it"]) == 3.6
    assert variants["random", "trials_to_95%"]["autotvm_over_it"] == ""
    assert float(variants["random", "elapsed_s"]["autotvm_over_it"]) == 2.0
    assert ("random", "steps") not in variants


def test_how_much_sooner_the_longest_run_was_equalled(results: Path) -> None:
    rows = table(results / "tuners_reference.csv", "layer", "variant", "seed")
    chameleon, random = rows["L1", "chameleon", "0"], rows["L1", "random", "0"]
    assert (chameleon["reference_trials"], chameleon["reference_quality"]) == ("500", "1")
    assert (chameleon["reached"], chameleon["trials"], chameleon["seconds"]) == ("1", "50", "25")
    assert (float(chameleon["sooner_than_whole_run"]), float(chameleon["sooner_than_first"])) == (20.0, 16.0)
    assert (random["reached"], random["seconds"]) == ("0", "96")
    overall = rows["all", "chameleon", ""]
    assert (overall["runs"], overall["reached"]) == ("2", "2")
    assert float(overall["sooner_than_whole_run"]) == pytest.approx((500 / 25 + 500 / 35) / 2, abs=1e-3)


def test_pictures_are_drawn(results: Path) -> None:
    pictures = sorted(path.name for path in results.glob("*.svg"))
    assert pictures == ["tuners_by_seconds.svg", "tuners_by_trials.svg", "tuners_parts_by_trials.svg"]
    assert all("</svg>" in (results / name).read_text() for name in pictures)
