"""Torch's own samples of its operators: one that was refused is right, and others are outside for a reason."""

from __future__ import annotations

import pytest

from benchmarks.zoo.torch_operators import case_names, run_all


@pytest.mark.guard
def test_samples_of_operators() -> None:
    names = [name for name in case_names(["unfold", "exponential", "lgamma", "nonzero"]) if name.endswith("/0")]
    outcomes = {result.case: (result.outcome, result.reason) for result in run_all(["add/float32/0", *names])}
    assert outcomes["add/float32/0"] == outcomes["unfold/float32/0"] == outcomes["unfold/bool/0"] == ("right", "")
    assert "random" in outcomes["exponential/float32/0"][1]
    assert "not core ATen" in outcomes["lgamma/float32/0"][1]
    assert "without elements" in outcomes["nonzero/float32/0"][1]
    assert {outcome for outcome, _ in outcomes.values()} == {"right", "outside"}
