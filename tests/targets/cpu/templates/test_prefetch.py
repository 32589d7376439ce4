"""Weights that come from memory are asked for ahead where that was chosen, and every answer is right."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anole.targets.cpu.target import CpuTarget
from anole.task import Conv2d, Dense, Workload

from ....examples import examples
from .kernels import PROCESSOR, drawn, error_of, text_of

TARGET = CpuTarget({**PROCESSOR, "exact": True})
LARGE = (
    Conv2d(1, 3, 5, 512, 512, (1, 1)),
    Conv2d(2, 7, 4, 256, 144, (3, 3), strides=(2, 1), padding=(1, 0, 0, 2)),
    Conv2d(1, 5, 5, 64, 176, (5, 5), dilation=(1, 1), padding=(2, 2, 2, 2)),
)
SMALL = Conv2d(1, 3, 5, 512, 496, (1, 1))
DENSE = Dense(7, 500, 600)


def test_only_weights_beyond_the_cache_have_the_choice() -> None:
    assert not any(knob.name == "prefetch" for knob in TARGET.space(SMALL).knobs)
    more = TARGET.template_versions["conv2d.prefetch"]
    assert TARGET.template_version(LARGE[0]) == TARGET.template_version(SMALL) + more


@pytest.mark.parametrize("prefetch", [0, 1])
@pytest.mark.parametrize("workload", LARGE, ids=lambda workload: f"k{workload.kernel[0]}")
def test_they_are_asked_for_where_that_was_chosen(workload: Conv2d, prefetch: int) -> None:
    config = drawn(TARGET.space(workload), prefetch=prefetch)
    assert ("prefetch" in text_of(TARGET.template(workload), workload, config)) == bool(prefetch)


@pytest.mark.parametrize("workload", [Dense(1, 500, 600), Dense(8, 500, 512), Dense(32, 500, 600)], ids=str)
def test_only_a_few_rows_of_dense_layers_wait_for_weights(workload: Dense) -> None:
    assert not any(knob.name == "prefetch_k" for knob in TARGET.space(workload).knobs)
    assert TARGET.template_version(workload) < TARGET.template_version(DENSE)


@pytest.mark.parametrize("steps", [0, 32])
def test_so_do_those_of_a_dense_layer(steps: int) -> None:
    config = drawn(TARGET.space(DENSE), prefetch_k=steps)
    assert ("prefetch" in text_of(TARGET.template(DENSE), DENSE, config)) == bool(steps)


@settings(max_examples=examples(8), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    asked=st.sampled_from([*((workload, {"prefetch": 1}) for workload in LARGE), (DENSE, {"prefetch_k": 64})]),
    seed=st.integers(0, 1 << 30),
)
def test_any_config_is_right(asked: tuple[Workload, dict[str, int]], seed: int) -> None:
    workload, values = asked
    config = drawn(TARGET.space(workload), seed, **values)
    assert error_of(TARGET.template(workload), workload, config) < 1e-5
