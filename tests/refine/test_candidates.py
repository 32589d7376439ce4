"""The choice of the fastest candidate within a network, and the time of a task from its kernels."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.documents.build import Build, BuiltKernel, BuiltTask, Coverage
from anole.documents.receipt import MeasuredConfig, Receipt
from anole.errors import BuildError
from anole.refine.candidates import (
    Candidate,
    best_candidates,
    choose,
    seconds_per_call,
    set_times,
    variant_positions,
    with_candidates,
)

seconds = st.floats(1e-7, 1.0)
keys = st.sampled_from("abcd")


def candidate(number: int, latency_s: float | None = None) -> Candidate:
    return Candidate({"tile": number}, 1e-3 + number, latency_s)


def receipt(key: str, n_rivals: int) -> Receipt:
    """Return a receipt with `n_rivals`, including the best config; 0 if no config of the task worked."""
    rivals = tuple(MeasuredConfig({"tile": number}, 1e-3 + number) for number in range(n_rivals))
    config, latency_s = (rivals[0].config, rivals[0].latency_s) if rivals else (None, None)
    return Receipt(key, f"run of {key}", n_rivals, config, latency_s, rivals=rivals)


receipts = st.dictionaries(keys, st.integers(0, 5)).map(
    lambda counts: {key: receipt(key, n_rivals) for key, n_rivals in counts.items()}
)


@given(st.lists(st.none() | seconds, min_size=1))
def test_the_fastest_candidate_is_chosen_or_the_first_of_equals(latencies_s: list[float | None]) -> None:
    position = choose([candidate(number, latency_s) for number, latency_s in enumerate(latencies_s)])
    working = [latency_s for latency_s in latencies_s if latency_s is not None]
    assert position == (latencies_s.index(min(working)) if working else 0)


@given(receipts, st.integers(1, 6))
def test_the_first_rivals_of_every_tuned_task_are_candidates(made: dict[str, Any], n: int) -> None:
    found = best_candidates(made, n)
    assert set(found) == {key for key, each in made.items() if each.config is not None}
    for key, of_task in found.items():
        assert [each.config for each in of_task] == [rival.config for rival in made[key].rivals[:n]]
        assert of_task[0].config == made[key].config and of_task[0].latency_alone_s == made[key].latency_s
        assert all(each.latency_s is None for each in of_task)


def test_a_receipt_of_an_older_version_is_named() -> None:
    with pytest.raises(BuildError, match="the task abc lists no competing configs; `snakemake --forcerun tune`"):
        best_candidates({"abc": replace(receipt("abc", 1), rivals=())}, 2)


@given(receipts, st.integers(0, 6))
def test_a_variant_changes_every_task_with_enough_candidates(made: dict[str, Any], number: int) -> None:
    found = best_candidates(made, 6)
    positions = variant_positions(found, number)
    assert positions == {key: number if number < len(made[key].rivals) else 0 for key in found}
    changed = with_candidates(made, found, positions)
    for key, each in changed.items():
        expected = found[key][positions[key]] if key in found else None
        assert each.config == (None if expected is None else expected.config)
        assert each.latency_s == (None if expected is None else expected.latency_alone_s)
        assert (each.run_key, each.rivals) == (made[key].run_key, made[key].rivals)


def build_of(tasks: tuple[BuiltTask, ...], kernels: tuple[BuiltKernel, ...]) -> Build:
    return Build(
        name="net",
        model="net",
        entry={},
        target="cpu",
        target_description={},
        preset="random",
        trials=1,
        seed=0,
        created_at="2026-11-21T10:00:00.000Z",
        inputs=(),
        outputs=(),
        coverage=Coverage(0, 0, 1.0),
        tasks=tasks,
        versions={},
        kernels=kernels,
    )


kernels = st.lists(st.tuples(st.none() | keys, st.integers(1, 4), st.none() | seconds), max_size=8)


@given(kernels, st.sets(keys))
def test_the_time_of_a_task_covers_all_its_kernels(rows: list[tuple[Any, int, Any]], tuned: set[str]) -> None:
    build = build_of(
        tasks=tuple(
            BuiltTask(key, key, 1, 1, (), None, "tuned" if key in tuned else "default", None, None, None)
            for key in "abcd"
        ),
        kernels=tuple(BuiltKernel(f"k{at}", calls, key, (), 1, 1) for at, (key, calls, _) in enumerate(rows)),
    )
    kernels_s = {f"k{at}": taken_s for at, (*_, taken_s) in enumerate(rows) if taken_s is not None}
    found = seconds_per_call(build, kernels_s)
    rows_of = {key: [row for row in rows if row[0] == key and row[2] is not None] for key in tuned}
    assert set(found) == {key for key, of_task in rows_of.items() if of_task}
    for key, per_call_s in found.items():
        total_s = sum(taken_s for *_, taken_s in rows_of[key])
        assert per_call_s * sum(calls for _, calls, _ in rows_of[key]) == pytest.approx(total_s)


@given(st.integers(1, 4), st.lists(st.lists(st.dictionaries(keys, seconds)), min_size=4, max_size=4))
def test_a_candidate_gets_the_median_of_its_variants_turns(n: int, rounds: list[list[dict[str, float]]]) -> None:
    found = set_times({"a": [candidate(number) for number in range(n)]}, rounds)
    for number, each in enumerate(found["a"]):
        taken_s = [turn["a"] for turn in rounds[number] if "a" in turn]
        assert each == candidate(number, median(taken_s) if taken_s else None)
