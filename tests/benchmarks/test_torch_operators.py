"""Torch's samples of its operators: nearly all are right, none is wrong, and cases out of scope have a reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.common.rows import read_rows
from benchmarks.zoo.torch_operators import case_names, run_all

RESULTS = Path(__file__).parents[2] / "docs/results"


def test_at_least_95_percent_of_the_samples_are_right_and_none_is_wrong() -> None:
    results = read_rows(RESULTS / "data/torch_operators.csv")
    counts = Counter[str]()
    for result in results:
        counts[result["outcome"]] += int(result["count"])
    assert not counts.keys() - {"right", "refused", "outside"}
    assert counts["right"] >= 0.95 * (counts["right"] + counts["refused"])
    assert all(result["reason"] and result["cases"] for result in results if result["outcome"] != "right")
    lines = (RESULTS / "torch.md").read_text().splitlines()
    for outcome in ("right", "refused", "outside"):
        (line,) = (line for line in lines if line.startswith(f"| {outcome}"))
        assert line.endswith(f" | {counts[outcome]:,} |")


@pytest.mark.guard
def test_samples_of_operators() -> None:
    names = [name for name in case_names(["unfold", "exponential", "lgamma", "nonzero"]) if name.endswith("/0")]
    outcomes = {f"{operator}/{sample}": each for operator, sample, each in run_all(["add/float32/0", *names])}
    assert outcomes["add/float32/0"] == outcomes["unfold/float32/0"] == outcomes["unfold/bool/0"] == ("right", "")
    assert "random" in outcomes["exponential/float32/0"][1]
    assert "not core ATen" in outcomes["lgamma/float32/0"][1]
    assert "without elements" in outcomes["nonzero/float32/0"][1]
    assert {outcome for outcome, _ in outcomes.values()} == {"right", "outside"}
