"""Any valid config, executed as OpenCL with real work-groups and barriers, is right, and free of races."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anole.task import Workload
from anole.testing.gpu_verdict import Engine, Outcome

from ....examples import examples
from ..templates.workloads import TARGET, convolutions, dense_layers, products, winograd_convolutions
from .small import SMALL, drawn, random_config, staged

ANY = (convolutions() | dense_layers | products).map(lambda workload: (workload, False))
CASES = ANY | winograd_convolutions.map(lambda workload: (workload, True))
QUICK = CASES.filter(lambda case: case[0].flop < 50_000)
SEEDS = st.integers(0, 1 << 30)
FEW = settings(max_examples=examples(10), deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=examples(150))


def assert_right(engine: Engine, workload: Workload, winograd: bool, seed: int) -> None:
    config = random_config(workload, seed, winograd=winograd)
    verdict = engine.judge(TARGET.template(workload), workload, config)
    assert verdict.outcome in (Outcome.RIGHT, Outcome.NOT_COVERED), (config, verdict)


@FEW
@given(case=CASES, seed=SEEDS)
def test_any_valid_config_is_right_by_pocl(pocl: Engine, case: tuple[Workload, bool], seed: int) -> None:
    assert_right(pocl, *case, seed)


@FEW
@given(case=QUICK, seed=SEEDS)
def test_any_valid_config_is_free_of_races(oclgrind: Engine, case: tuple[Workload, bool], seed: int) -> None:
    assert_right(oclgrind, *case, seed)


@pytest.mark.slow
@MANY
@given(case=CASES, seed=SEEDS)
def test_any_valid_config_of_many_more_is_right_by_pocl(pocl: Engine, case: tuple[Workload, bool], seed: int) -> None:
    assert_right(pocl, *case, seed)


@pytest.mark.slow
@MANY
@given(case=CASES, seed=SEEDS)
def test_any_valid_config_of_many_more_is_free_of_races(
    oclgrind: Engine, case: tuple[Workload, bool], seed: int
) -> None:
    assert_right(oclgrind, *case, seed)


@pytest.mark.slow
@MANY
@given(case=CASES, seed=SEEDS)
def test_any_valid_config_is_right_with_replicated_work_items(
    replicating_pocl: Engine, case: tuple[Workload, bool], seed: int
) -> None:
    assert_right(replicating_pocl, *case, seed)


@pytest.mark.parametrize("kind", SMALL)
def test_a_small_layer_of_every_template_is_right_by_pocl(kind: str, pocl: Engine) -> None:
    workload = SMALL[kind]
    for config in (drawn(kind, 0), drawn(kind, 1)):
        verdict = pocl.judge(TARGET.template(workload), workload, config)
        assert verdict.outcome is Outcome.RIGHT, (config, verdict)


@pytest.mark.parametrize("kind", [kind for kind in SMALL if kind != "winograd"])
def test_a_small_layer_of_a_template_is_right_with_replicated_work_items(kind: str, replicating_pocl: Engine) -> None:
    workload, config = SMALL[kind], staged(kind)
    verdict = replicating_pocl.judge(TARGET.template(workload), workload, config)
    assert verdict.outcome is Outcome.RIGHT, (config, verdict)
