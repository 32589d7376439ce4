"""The draws, verdicts and counts of `benchmarks/gpu/configs.py`."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from contextlib import nullcontext
from io import StringIO
from math import isnan
from pathlib import Path

import pytest

from anole.space import ALGORITHM
from benchmarks.gpu import configs as gpu_configs
from benchmarks.gpu.configs import FIXED, LARGE, TARGET, draw, judge
from tests.kit.emulated_gpu.worker import EmulatedGpu, EmulationError


def test_every_template_takes_turns_with_valid_configs_of_fixed_and_random_layers() -> None:
    drawn = list(draw(list(FIXED), 4, 0))
    assert [kind for kind, _, _ in drawn] == 4 * list(FIXED)
    for at, (kind, workload, config) in enumerate(drawn):
        assert TARGET.space(workload).rejection(config) is None
        assert kind != "winograd" or config[ALGORITHM] == "winograd"
        assert (workload == FIXED[kind]) == (at // len(FIXED) % 2 == 0)
    assert drawn == list(draw(list(FIXED), 4, 0)) != list(draw(list(FIXED), 4, 1))


def test_layers_of_networks_take_the_place_of_all_others() -> None:
    drawn = list(draw(list(LARGE), 2, 0, large=True))
    assert [workload for _, workload, _ in drawn] == 2 * list(LARGE.values())
    assert all(TARGET.space(workload).rejection(config) is None for _, workload, config in drawn)


def test_every_config_is_a_row_and_is_counted(
    emulated_gpu: EmulatedGpu,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path = tmp_path / "counts.csv"
    arguments = ["gpu_configs.py", "--configs", "2", "--templates", "gemm,gemv", "--counts", str(path)]
    monkeypatch.setattr(gpu_configs, "EmulatedGpu", lambda: nullcontext(emulated_gpu))
    monkeypatch.setattr(sys, "argv", arguments)
    gpu_configs.main()
    rows = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert Counter((row["template"], row["outcome"]) for row in rows) == {("gemm", "right"): 2, ("gemv", "right"): 2}
    assert all(json.loads(row["config"]) and float(row["error"]) < 3e-5 for row in rows)
    assert [row["right"] for row in csv.DictReader(path.open())] == ["2", "2"]


@pytest.mark.parametrize(
    ("message", "outcome"),
    [("race: of a write", "racy"), ("an access leaves an array", "invalid"), ("did not finish", "failed")],
)
def test_a_fault_is_told_by_its_message(message: str, outcome: str) -> None:
    class Faulty:
        def call(self, *_: object) -> float:
            raise EmulationError(message)

    found, error, detail = judge(Faulty(), FIXED["gemm"], {})
    assert (found, detail) == (outcome, message) and isnan(error)


def test_nothing_begins_after_the_time_is_up(
    emulated_gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_configs, "EmulatedGpu", lambda: nullcontext(emulated_gpu))
    monkeypatch.setattr(sys, "argv", ["gpu_configs.py", "--minutes", "0"])
    gpu_configs.main()
    assert len(capsys.readouterr().out.splitlines()) == 1
