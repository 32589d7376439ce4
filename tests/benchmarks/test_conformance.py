"""ONNX's backend suite: recorded passes must still pass, and no case may be wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from benchmarks.common.rows import read_rows
from benchmarks.zoo.conformance import out_of_scope_reason, run_all, suite

RESULTS = Path(__file__).parents[2] / "docs/results/data/conformance.csv"


def names_by_outcome() -> dict[str, list[str]]:
    """Return the names of all cases by recorded outcome."""
    found: dict[str, list[str]] = {"right": []}
    for row in read_rows(RESULTS):
        found.setdefault(row["outcome"], []).extend(row["cases"].split())
    found["right"] = sorted(suite().keys() - set().union(*found.values()))
    return found


def check(names: Iterable[str]) -> None:
    """Run cases; recorded right ones must be right, and none may be wrong or crash."""
    right = set(names_by_outcome()["right"])
    found = {case: outcome for _, case, outcome in run_all(names)}
    assert not {
        case: each
        for case, each in found.items()
        if each.outcome in ("wrong", "crashed") or (case in right and each.outcome != "right")
    }


def test_at_least_95_percent_of_the_cases_are_right_and_none_is_wrong() -> None:
    rows, counts = read_rows(RESULTS), Counter[str]()
    for row in rows:
        counts[row["outcome"]] += int(row["count"])
    assert not counts.keys() - {"right", "refused", "outside"}
    assert counts["right"] >= 0.95 * (counts["right"] + counts["refused"])
    assert all(row["reason"] and row["cases"] for row in rows if row["outcome"] != "right")
    page = (RESULTS.parents[1] / "onnx.md").read_text()
    assert all(re.search(rf"^\| {outcome}\b.* \| {counts[outcome]:,} \|$", page, re.MULTILINE) for outcome in counts)


@pytest.mark.slow
def test_a_sample_of_the_suite() -> None:
    names = names_by_outcome()
    assert len(names["right"]) == sum(int(row["count"]) for row in read_rows(RESULTS) if row["outcome"] == "right")
    check(sorted(names["right"] + names["refused"])[::45])


def test_cases_out_of_scope_have_a_reason() -> None:
    outside = {name: out_of_scope_reason(suite()[name]) for name in ("test_nonzero_example", "test_adam", "test_abs")}
    assert outside == {
        "test_nonzero_example": "the shape of NonZero's output depends on data",
        "test_adam": "domain ai.onnx.preview.training",
        "test_abs": None,
    }


@pytest.mark.slow
def test_the_whole_suite() -> None:
    check(suite())
