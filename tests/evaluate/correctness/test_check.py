"""The correctness check of builds: its evidence, its tolerances and its messages."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.linalg import norm

from anole.documents.build import Build, BuiltKernel, read_build
from anole.documents.evaluation import Evaluation, Latency
from anole.errors import BuildError
from anole.evaluate.comparison import compare_outputs, relative_error
from anole.evaluate.correctness.check import reject_wrong, rounding_remedy

BUILD = read_build(Path(__file__).parents[2] / "old_records/builds/residual-accelerator-dcoc")
LATENCY = Latency("onnxruntime", 1.0, 1.0, 1.0, relative_error=0.02)
FAR = Evaluation("net", "2026-01-01T00:00:00Z", 1, {}, {}, 0.0, (LATENCY,))
BF16_BUILD = replace(BUILD, target_description={"kind": "cpu", "precision": "bf16"})
MEANS = {"reference_sensitivity": 0.01, "nearby_error": 0.02, "averaged_error": 1e-3, "averaged_draws": 400}
INT8_BUILD = replace(BUILD, kernels=(BuiltKernel("conv", 1, None, (), 1, 1, "uint8"),))


def check(build: Build, evidence: dict[str, Any], message: str | None) -> None:
    """Check a build whose outputs are far from its reference's; expect an error that contains the message, if any."""
    with nullcontext() if message is None else pytest.raises(BuildError, match=re.escape(message)):
        reject_wrong(Path("net"), build, replace(FAR, **evidence))


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ({"exact_error": 0.05, "reference_exact_error": 0.02}, None),
        ({"exact_error": 0.07, "reference_exact_error": 0.02}, "(0.07 from outputs computed without fusing"),
        ({"exact_error": 0.2, "reference_exact_error": 0.15}, "(0.2 from outputs computed without fusing"),
        ({"exact_error": 0.056, "reference_exact_error": 0.2}, None),
        ({**MEANS, "averaged_error": 4e-3, "averaged_draws": 40}, None),
        ({**MEANS, "averaged_error": 2e-2}, "and up to 0.003 may be chance"),
    ],
)
def test_a_quantized_network_is_compared_with_its_file(evidence: dict[str, Any], message: str | None) -> None:
    check(INT8_BUILD, evidence, message)


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ({"exact_error": 2e-4, "reference_exact_error": 1e-4}, None),
        (
            {"exact_error": 4e-4, "reference_exact_error": 1e-4},
            "relative error 0.02; at most 0.0001 is allowed (0.0004",
        ),
        ({"exact_error": 2e-4, "reference_exact_error": 4e-3}, "(0.0002 from outputs computed in double precision)"),
        (MEANS, None),
        ({**MEANS, "averaged_error": 4e-3}, "nearby inputs differ by 0.004, and up to 0.003 may be chance"),
        ({**MEANS, "nearby_error": 0.05}, "reference's outputs change by 0.01 if its inputs are perturbed"),
        ({**MEANS, "averaged_draws": 32}, "errors below 0.011 would go undetected"),
        ({}, "net: the outputs differ from onnxruntime's: relative error 0.02; at most 0.0001 is allowed"),
        ({"latencies": (replace(LATENCY, relative_error=1e-5),)}, None),
        (
            {"latencies": (replace(LATENCY, relative_error=1e-5, variation_error=0.01),)},
            "error relative to their variation with the input 0.01",
        ),
        ({"latencies": (), "redrawn_error": 0.1}, "with random weights, to make the outputs depend on the input"),
        ({"latencies": (), "redrawn_error": 1e-5}, None),
    ],
    ids=lambda value: None,
)
def test_evidence_decides(evidence: dict[str, Any], message: str | None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check(BUILD, evidence, message)
    is_far = any(latency.relative_error > 1e-4 for latency in replace(FAR, **evidence).latencies)
    is_accepted = "net: the outputs differ from onnxruntime's by 0.02, and " in caplog.text
    assert is_accepted is (is_far and message is None)


def test_agreement_with_one_of_two_references_suffices(caplog: pytest.LogCaptureFixture) -> None:
    torch, runtime = replace(LATENCY, reference="torch", relative_error=0.26), replace(LATENCY, relative_error=9e-7)
    with caplog.at_level(logging.WARNING):
        reject_wrong(Path("net"), BUILD, replace(FAR, latencies=(torch, runtime)))
    warned = "differ from torch's by 0.26, and from onnxruntime's by only 9e-07: the references disagree"
    assert warned in caplog.text
    with pytest.raises(BuildError, match=r"relative error 0\.26"):
        reject_wrong(Path("net"), BUILD, replace(FAR, latencies=(torch, replace(runtime, relative_error=2e-4))))


@pytest.mark.parametrize(("algorithm", "is_mentioned"), [("winograd", True), ("direct", False)])
def test_the_advice_mentions_exact_for_winograd(algorithm: str, is_mentioned: bool) -> None:
    tasks = tuple(replace(task, config={"algorithm": algorithm}) for task in BUILD.tasks)
    build = replace(BUILD, target_description={"kind": "cpu"}, tasks=tasks)
    assert ("with `exact: true`" in rounding_remedy(build)) is is_mentioned


@pytest.mark.parametrize("function", [lambda x: x, np.log, np.reciprocal, lambda x: np.where(x < 0.5, np.nan, x)])
def test_special_values_must_be_at_the_same_positions(function: Callable[[Any], Any]) -> None:
    with np.errstate(divide="ignore"):
        one, other = (function(np.asarray(values, np.float32)) for values in ([0, 1, 2, 0], [0, 1, 3, 0]))
    assert relative_error([one, other], [one, other]) == 0
    comparison = compare_outputs([[one], [other]], [[one], [other]])
    assert comparison.error == 0 and 0 < comparison.output_variation < 1
    finite = [array[np.isfinite(array)] for array in (one, other)]
    assert relative_error([one], [other]) == pytest.approx(norm(finite[0] - finite[1]) / norm(finite[1]))


def test_relative_errors() -> None:
    one, two = np.ones(4, np.float32), np.full(4, 2, np.float32)
    assert relative_error([one, two], [one, two]) == 0
    assert relative_error([one, one], [one, two]) == pytest.approx(0.5)
    broken = [np.array([value, 1, 1, 1], np.float32) for value in (np.nan, np.inf, -np.inf)]
    others = [(mine, theirs) for mine in (*broken, one) for theirs in (*broken, one) if mine is not theirs]
    for mine, theirs in (*others, (one[:2], one)):
        assert relative_error([mine], [theirs]) > 1e99
        assert compare_outputs([[mine]], [[theirs]]).error ** 2 > 1e99
    assert relative_error([one], [one, two]) > 1e99


@pytest.mark.parametrize(
    ("errors", "exact", "shown"),
    [
        ({"torch": 2e-6, "onnxruntime": 1e-6}, None, "1.00 s in float32, error 1.0e-06"),
        ({"torch": 2e-6, "onnxruntime": 3.4e-2}, None, "error 2.0e-06 (onnxruntime is off by 3.4e-02)"),
        ({"torch": 2e-2, "onnxruntime": 3.4e-2}, 1e-5, "error 1.0e-05 (onnxruntime is off by 3.4e-02)"),
        ({"onnxruntime": 0.24}, 0.056, "error 5.6e-02 (onnxruntime is off by 2.4e-01)"),
    ],
)
def test_an_evaluation_shows_the_error_that_decides(errors: dict[str, float], exact: float | None, shown: str) -> None:
    latencies = tuple(replace(LATENCY, reference=name, relative_error=error) for name, error in errors.items())
    assert str(replace(FAR, latencies=latencies, exact_error=exact, precision="float32")).endswith(shown)


@pytest.mark.parametrize("setting", [{"precision": "bf16"}, {"weights": "int4"}])
def test_a_rounding_build_may_equal_a_rounded_reference(setting: dict[str, str]) -> None:
    build = replace(BUILD, target_description={"kind": "cpu", **setting})
    far = replace(FAR, latencies=(replace(LATENCY, relative_error=0.5),), narrow_error=0.1)
    reject_wrong(Path("net"), build, replace(far, rounded_error=9e-5))
    with pytest.raises(BuildError, match=re.escape("at most 0.01 is allowed")):
        reject_wrong(Path("net"), build, replace(far, rounded_error=2e-4))


@pytest.mark.parametrize(
    ("error", "rounding_error", "message"),
    [
        (0.005, None, None),
        (0.02, None, "relative error 0.02; at most 0.01 is allowed"),
        (0.02, 0.01, None),
        (0.02, 0.005, "is allowed (the reference differs from itself by 0.005 if it rounds in the same way)"),
        (0.5, 0.4, "relative error 0.5"),
    ],
)
def test_the_tolerance_of_low_precision_is_its_effect_on_the_reference(
    error: float, rounding_error: float | None, message: str | None
) -> None:
    latency = replace(LATENCY, relative_error=error)
    check(BF16_BUILD, {"latencies": (latency,), "narrow_error": rounding_error}, message)
