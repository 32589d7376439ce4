"""ONNX's backend suite: what passed once must pass again, and nothing may be wrong."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.zoo.conformance import Result, outside_why, run_all, suite

RESULTS = Path(__file__).parents[2] / "docs/results/data/conformance.csv"


def known() -> dict[str, Result]:
    """Returns the results of every case, as they are stored."""
    with RESULTS.open() as file:
        lines = (Result(**{**line, "opset": int(line["opset"])}) for line in csv.DictReader(file))
        return {result.case: result for result in lines}


def check(names: Sequence[str]) -> None:
    """Runs cases; those that were right must be, and none may be wrong or crash."""
    before = known()
    worse = [
        result
        for result in run_all(names)
        if result.outcome in ("wrong", "crashed") or (before[result.case].outcome == "right" != result.outcome)
    ]
    assert not worse


def test_at_least_95_percent_of_the_cases_are_right_and_none_is_wrong() -> None:
    counts = Counter(result.outcome for result in known().values())
    assert not counts.keys() - {"right", "refused", "outside"}
    assert counts["right"] >= 0.95 * (counts["right"] + counts["refused"])
    assert all(result.reason for result in known().values() if result.outcome != "right")


@pytest.mark.slow
def test_a_sample_of_the_suite() -> None:
    inside = sorted(name for name, result in known().items() if result.outcome != "outside")
    check(inside[::45])


def test_cases_are_outside_for_a_reason() -> None:
    outside = {name: outside_why(suite()[name]) for name in ("test_nonzero_example", "test_adam", "test_abs")}
    assert outside == {
        "test_nonzero_example": "the shape of NonZero's output depends on data",
        "test_adam": "domain ai.onnx.preview.training",
        "test_abs": None,
    }


@pytest.mark.slow
def test_the_whole_suite() -> None:
    check(list(known()))
