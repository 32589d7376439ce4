"""The CPU's open spaces: their content, correctness of configs, and fast search by every tuner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given

from anole.measure.measurer import Measurer
from anole.measure.options import Limits, MeasureOptions
from anole.record import Config, Status
from anole.search.evaluators.fixed import Fixed
from anole.search.presets import PRESETS
from anole.space import ALGORITHM
from anole.targets.cpu.settings import describe_cpu
from anole.targets.cpu.target import CpuTarget
from anole.task import BatchMatmul, Conv2d, Dense, Task, Workload
from anole.testing.formulas import Formula

from .cases import SEEDS, error_of, random_config, tries, workloads

SAME = (1, 1, 1, 1)
OPEN = CpuTarget({**describe_cpu(space="open"), "threads": 2})
CONSTRAINED = CpuTarget({**describe_cpu(), "threads": 2})
EXACT = CpuTarget({**describe_cpu(exact=True), "threads": 2})

L4 = Conv2d(1, 224, 224, 64, 64, (3, 3), padding=SAME)
LAYERS = {
    "L1": Conv2d(1, 224, 224, 3, 64, (11, 11), (4, 4), (2, 2, 2, 2)),
    "L2": Conv2d(1, 13, 13, 384, 256, (3, 3), padding=SAME),
    "L4": L4,
    "L7": Conv2d(1, 14, 14, 256, 256, (3, 3), padding=SAME),
}
"""Layers of the papers."""

MAX_ACCUMULATORS = 128
"""Maximum number of accumulators of a register tile that is unrolled quickly."""


def accumulators(config: Config) -> int:
    if "panel_vectors" in config:
        return int(config["panel_vectors"] * config["tile_y"][3])
    panel = config["tile_f" if "tile_f" in config else "tile_x"][2]
    columns = config["tile_x"][1] if "tile_f" in config else 1
    return int(panel // OPEN.unit.lanes_of(panel) * config["tile_y"][2] * columns)


@pytest.mark.guard
@tries(10)
@given(workload=workloads, seed=SEEDS)
def test_any_open_config_is_correct(workload: Workload, seed: int) -> None:
    config = random_config(OPEN.space(workload), seed)
    assume(accumulators(config) <= MAX_ACCUMULATORS)
    assert error_of(OPEN.template(workload), workload, config) < 1e-5


@pytest.mark.slow
@tries(200)
@given(workload=workloads, seed=SEEDS)
def test_many_more_open_configs_are_correct(workload: Workload, seed: int) -> None:
    config = random_config(OPEN.space(workload), seed)
    assume(accumulators(config) <= MAX_ACCUMULATORS)
    assert error_of(OPEN.template(workload), workload, config) < 1e-5


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    ("workload", "tiles"),
    [
        (Conv2d(1, 9, 7, 5, 20, (3, 3), padding=SAME), {"tile_f": [3, 1, 8], "tile_y": [3, 1, 4], "tile_x": [2, 4]}),
        (
            Conv2d(2, 11, 11, 4, 6, (3, 3), (2, 2), dilation=(2, 2)),
            {"tile_f": [2, 1, 4], "tile_y": [2, 1, 2], "tile_x": [2, 2]},
        ),
        (Conv2d(1, 9, 7, 20, 20, (3, 3), groups=20), {"tile_f": [3, 1, 8], "tile_y": [2, 1, 4], "tile_x": [3, 2]}),
        (Conv2d(1, 9, 7, 20, 10, (3, 3), padding=SAME, groups=5), {"tile_y": [3, 1, 4], "tile_x": [2, 4]}),
        (Conv2d(1, 9, 7, 4, 64, (3, 3), padding=SAME, groups=2), {"tile_y": [3, 1, 4], "tile_x": [2, 4]}),
        (Dense(5, 12, 20), {"tile_y": [2, 1, 4], "tile_x": [3, 1, 8]}),
        (BatchMatmul(2, 5, 12, 20, transpose_right=True), {"tile_y": [2, 2, 2], "tile_x": [2, 2, 8]}),
        (BatchMatmul(1, 1, 1, 50), {"tile_x": [7, 8, 1], "pack_at": "tile"}),
    ],
    ids=lambda value: value.label if isinstance(value, Workload) else "",
)
def test_tails_are_computed_and_cropped(workload: Workload, tiles: dict[str, Any]) -> None:
    config = {**OPEN.default_config(workload), **tiles}
    assert OPEN.space(workload).rejection(config) is None
    assert error_of(OPEN.template(workload), workload, config) < 1e-5


@pytest.mark.parametrize("workload", LAYERS.values(), ids=LAYERS)
def test_open_spaces_of_the_papers_layers_have_the_expected_size(workload: Conv2d) -> None:
    space, constrained = OPEN.space(workload), EXACT.space(workload)
    assert 10**7 < len(space) < 3 * 10**8 and len(space) > 10 * len(constrained)
    assert not space.constraints and space.merit is None
    assert ALGORITHM not in [knob.name for knob in space.knobs]


@tries(50)
@given(workload=workloads, seed=SEEDS)
def test_an_open_space_contains_the_constrained_space_and_its_default(workload: Workload, seed: int) -> None:
    space, constrained = OPEN.space(workload), EXACT.space(workload)
    for vector in constrained.sample(4, np.random.default_rng(seed)):
        assert space.rejection(constrained.config(vector)) is None
    assert OPEN.default_config(workload) == EXACT.default_config(workload)
    assert space.rejection(OPEN.default_config(workload)) is None


def test_open_tasks_have_separate_keys_and_other_keys_stay() -> None:
    def key(target: CpuTarget) -> str:
        return Task(L4, target.description, target.template_version(L4)).key

    assert key(OPEN) != key(CONSTRAINED)
    assert describe_cpu(space="constrained") == describe_cpu()
    assert "space" not in CONSTRAINED.description and OPEN.description["space"] == "open"
    assert not any("open" in name for name in CONSTRAINED.template_versions)


def test_different_configs_have_different_features() -> None:
    space = OPEN.space(LAYERS["L7"])
    vectors = space.sample(300, np.random.default_rng(0))
    features = space.features(vectors)
    assert np.isfinite(features).all() and len(np.unique(features, axis=0)) == len(vectors)
    panel = random_config(space, 1)["tile_f"][2]
    lanes = space.feature_names.index("f_vector.length")
    same_panel = features[space.columns(vectors)["tile_f"][:, 2] == panel]
    np.testing.assert_allclose(same_panel[:, lanes], np.log2(OPEN.unit.lanes_of(panel) + 1), rtol=1e-6)


@pytest.mark.examples(3)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_tuner_searches_without_enumerating(preset: str) -> None:
    space = OPEN.space(L4)
    parts = PRESETS[preset]
    formula = Formula(space, lambda columns: 1e-3 * (1.0 + columns["tile_f"][:, 0] + columns["tile_y"][:, 2]), L4.flop)
    explorer = parts.explorer
    if hasattr(explorer, "n_steps"):
        explorer = replace(explorer, n_steps=25)
    exploring, sampling = explorer.start(space), parts.sampler.start(space)
    surrogate, history, rng = parts.surrogate.start(space), formula.history(32), np.random.default_rng(0)
    surrogate.fit(history)
    candidates = exploring.propose(surrogate, history, rng)
    chosen = sampling.choose(candidates, history, parts.batch, rng)
    assert len(chosen) >= 8 and len(np.unique(space.indices(chosen))) == len(chosen)
    assert not np.isin(space.indices(chosen), history.visited).any()
    assert candidates.log.get("forced_share", 0.0) == 0.0
    # An enumeration would take 200 million queries.
    assert space.valid_indices is None and candidates.log.get("queries", 0) < 10**4


@pytest.mark.slow
@pytest.mark.parametrize("workload", [Conv2d(1, 28, 28, 16, 24, (3, 3), padding=SAME), Dense(64, 64, 256)])
def test_a_candidate_is_correct_or_fails_with_a_reason(workload: Workload) -> None:
    task = Task(workload, OPEN.description, OPEN.template_version(workload))
    oversized = {**OPEN.default_config(workload), "tile_y": [1, 1, OPEN.space(workload).knobs[1].values[0][2]]}
    configs = [*(random_config(OPEN.space(workload), seed) for seed in range(30)), oversized]
    options = MeasureOptions(Fixed(number=1, repeats=3), limits=Limits(build_s=5.0, run_s=5.0))
    with Measurer(task, options) as measurer:
        measured = list(measurer.measure(configs))
    assert len(measured) == len(configs)
    for measurement in measured:
        if measurement.status is Status.OK:
            assert measurement.relative_error is not None and measurement.relative_error < 1e-5
        else:
            assert measurement.status is not Status.WRONG_ANSWER and measurement.error
    assert sum(measurement.status is Status.OK for measurement in measured) > len(configs) // 2
