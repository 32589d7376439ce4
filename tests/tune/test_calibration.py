"""Calibration of a target, with real trials of two small layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from anole.errors import TargetError
from anole.store.shard import read_shard
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.task import BatchMatmul, Conv2d, Dense, Task
from anole.tune import calibration
from anole.tune.calibration import TRIALS, calibrate, common_layers
from anole.tune.transfer import find_sources, read_prior
from anole_vta.settings import describe_vta

CPU = describe_cpu(threads=1)


def test_searches_of_other_layers_learn_from_the_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "common_layers", lambda: [Dense(1, 32, 64), Dense(1, 64, 64)])
    assert calibrate(CPU, tmp_path, seconds=0) == (0, 2)
    assert calibrate(CPU, tmp_path) == (2, 2)
    paths = list(tmp_path.glob("*/*.jsonl"))
    contents = [read_shard(path) for path in paths]
    assert [len(each.trials) for each in contents] == [TRIALS] * 2
    task = Task(Dense(1, 64, 128), CPU, contents[0].task.template_version)
    sources = find_sources(tmp_path, task)
    assert {source.task_key for source in sources} == {each.task.key for each in contents}
    prior = read_prior(tmp_path, sources, get_target(CPU).space(task.workload))
    assert prior is not None and len(prior) == 2 * TRIALS
    before = [path.read_bytes() for path in paths]
    assert calibrate(CPU, tmp_path) == (2, 2)
    assert [path.read_bytes() for path in paths] == before


def test_a_simulator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="needs no calibration"):
        calibrate(describe_vta(), tmp_path)


def test_every_prefix_of_the_common_layers_has_each_operator() -> None:
    layers = common_layers()
    assert len(layers) == len(set(layers)) > 180
    for share in (0.2, 0.5, 1.0):
        first = layers[: round(share * len(layers))]
        assert {type(layer) for layer in first} == {BatchMatmul, Conv2d, Dense}
        groups = [layer.groups for layer in first if isinstance(layer, Conv2d)]
        assert 0.1 < sum(each > 1 for each in groups) / len(groups) < 0.4
    assert {layer.batch for layer in layers if isinstance(layer, Dense)} >= {1, 128}
