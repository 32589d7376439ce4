"""The proof that Oclgrind would find a missing barrier and a wrong index in every template, and finds none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anole.testing.gpu_verdict import Outcome
from anole.testing.opencl.candidate import Candidate
from anole.testing.opencl.engines import OclgrindEngine, PoclEngine

from ..templates.workloads import TARGET
from .mutants import off_by_one, without_barriers
from .small import SMALL, staged


def candidate_of(kind: str) -> Candidate:
    workload = SMALL[kind]
    return Candidate.of(TARGET.template(workload), workload, staged(kind))


@pytest.mark.parametrize("kind", SMALL)
def test_a_kernel_is_clean_until_a_barrier_is_deleted(kind: str, oclgrind: OclgrindEngine) -> None:
    candidate = candidate_of(kind)
    verdict = oclgrind.judge_lowered(candidate)
    assert verdict.outcome is Outcome.RIGHT, verdict.detail
    mutants = list(without_barriers(candidate.launches.source))
    assert len(mutants) >= (1 if kind == "depthwise" else 2)
    for mutant in mutants:
        verdict = oclgrind.judge_lowered(candidate.mutated(lambda _, mutant=mutant: mutant))
        assert verdict.outcome is Outcome.RACY and "data race at local memory" in verdict.detail


def assert_found(kind: str, oclgrind: OclgrindEngine, least: int, chosen: Callable[[str], bool]) -> None:
    candidate = candidate_of(kind)
    outcomes = {
        what: oclgrind.judge_lowered(candidate.mutated(lambda _, mutant=mutant: mutant)).outcome
        for what, mutant in off_by_one(candidate.launches.source)
        if chosen(what)
    }
    assert len(outcomes) >= least
    assert {*outcomes.values()} <= {Outcome.INVALID, Outcome.WRONG, Outcome.RACY}, outcomes


@pytest.mark.parametrize("kind", SMALL)
def test_an_index_that_is_off_by_one_is_found(kind: str, oclgrind: OclgrindEngine) -> None:
    assert_found(kind, oclgrind, 2, lambda what: what.startswith("last") and what.endswith("_shared_ptr"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", SMALL)
def test_every_index_that_is_off_by_one_is_found(kind: str, oclgrind: OclgrindEngine) -> None:
    assert_found(kind, oclgrind, 2 * 5, lambda what: True)


@pytest.mark.parametrize("kind", SMALL)
def test_pocl_finds_an_output_that_is_off_by_one(kind: str, pocl: PoclEngine) -> None:
    candidate = candidate_of(kind)
    verdict = pocl.judge_lowered(candidate)
    assert verdict.outcome is Outcome.RIGHT, verdict.detail
    mutants = dict(off_by_one(candidate.launches.source))
    mutant = mutants[f"last {candidate.launches.output}_ptr"]
    assert pocl.judge_lowered(candidate.mutated(lambda _: mutant)).outcome in (Outcome.INVALID, Outcome.WRONG)
