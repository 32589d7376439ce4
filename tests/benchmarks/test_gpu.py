"""CUDA kernels without a GPU: random configs, the model, the assembler, and `make bench-gpu` on an emulated GPU."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from io import StringIO
from math import isnan
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from anole.space import ALGORITHM
from anole.task import Conv2d
from benchmarks.common.rows import read_rows
from benchmarks.cuda import configs, model, resources
from benchmarks.cuda.configs import FIXED, LARGE, TARGET, run_config, sample_configs
from kit.emulated_gpu.machine import build_environment, why_unavailable
from kit.emulated_gpu.worker import EmulatedGpu, EmulationError

from ..tiny_builds import HOME

LAYER = Conv2d(1, 28, 28, 256, 128, (3, 3), (2, 2), (1, 1, 1, 1))
ENTITY = [
    ["tile_f", "sp", [-1, 1, 32, 1]],
    ["tile_y", "sp", [-1, 1, 2, 1]],
    ["tile_x", "sp", [-1, 1, 2, 1]],
    ["tile_rc", "sp", [-1, 2, 4]],
    ["tile_ry", "sp", [-1, 3, 1]],
    ["tile_rx", "sp", [-1, 1, 1]],
    ["auto_unroll_max_step", "ot", 512],
    ["unroll_explicit", "ot", 1],
]

WHOLE = "benchmarks.cuda.whole"


def test_templates_alternate_with_valid_configs_of_fixed_and_random_layers() -> None:
    sampled = list(sample_configs(list(FIXED), 4, 0))
    assert [kind for kind, _, _ in sampled] == 4 * list(FIXED)
    for at, (kind, workload, config) in enumerate(sampled):
        assert TARGET.space(workload).rejection(config) is None
        assert kind != "winograd" or config[ALGORITHM] == "winograd"
        assert (workload == FIXED[kind]) == (at // len(FIXED) % 2 == 0)
    assert sampled == list(sample_configs(list(FIXED), 4, 0)) != list(sample_configs(list(FIXED), 4, 1))


def test_large_layers_replace_all_others() -> None:
    sampled = list(sample_configs(list(LARGE), 2, 0, large=True))
    assert [workload for _, workload, _ in sampled] == 2 * list(LARGE.values())
    assert all(TARGET.space(workload).rejection(config) is None for _, workload, config in sampled)


def test_every_config_is_a_row_and_is_counted(
    emulated_gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(configs, "EmulatedGpu", lambda: nullcontext(emulated_gpu))
    monkeypatch.setattr(sys, "argv", ["", "--configs", "2", "--templates", "gemm,gemv"])
    configs.main()
    printed = capsys.readouterr()
    rows = list(csv.DictReader(StringIO(printed.out)))
    assert Counter((row["template"], row["outcome"]) for row in rows) == {("gemm", "right"): 2, ("gemv", "right"): 2}
    assert all(json.loads(row["config"]) and float(row["error"]) < 3e-5 for row in rows)
    assert [line.split()[-1] for line in printed.err.splitlines()] == ["right", "2", "2"]


@pytest.mark.parametrize(
    ("message", "outcome"),
    [("race: of a write", "racy"), ("an access leaves an array", "invalid"), ("did not finish", "failed")],
)
def test_faults_are_classified_by_message(message: str, outcome: str) -> None:
    gpu = Mock(call=Mock(side_effect=EmulationError(message)))
    found, error, detail = run_config(gpu, FIXED["gemm"], {})
    assert (found, detail) == (outcome, message) and isnan(error)


def test_no_config_starts_after_the_time_limit(
    emulated_gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(configs, "EmulatedGpu", lambda: nullcontext(emulated_gpu))
    monkeypatch.setattr(sys, "argv", ["", "--minutes", "0"])
    configs.main()
    assert len(capsys.readouterr().out.splitlines()) == 1


def record(latency_s: float, error: int = 0) -> str:
    arguments = [1, 28, 28, 128, 256, 3, 3, [2, 2], [1, 1]]
    return json.dumps(
        {
            "input": ["cuda", "tutorial/conv2d_no_batching", arguments, {}],
            "config": {"entity": ENTITY},
            "result": [[latency_s], error, 1.0, 0.0],
        }
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "conv2d.log"
    path.write_text("\n".join([record(1e-4), record(1e9, error=1), record(3e-4)]))
    return path


def test_a_log_has_the_configs_that_ran_with_their_staged_parts(log: Path) -> None:
    ((layer, records),) = model.read_log(log).items()
    assert layer == LAYER
    assert [latency_s for _, latency_s in records] == [1e-4, 3e-4]
    columns = model.columns_of(layer, [config for config, _ in records])
    assert columns["tile_f"][0].tolist() == [4, 1, 32, 1] and columns["tile_y"][0].tolist() == [7, 1, 2, 1]
    assert columns["tile_rc"][0].tolist() == [32, 8] and columns["tile_ry"][0].tolist() == [1, 3]
    assert columns["auto_unroll_max_step"].tolist() == [512, 512]


def test_the_nchw_kernel_has_the_same_multiplications(log: Path) -> None:
    ((layer, records),) = model.read_log(log).items()
    kernel = model.nchw_kernel(model.GPUS["V100"], layer, model.columns_of(layer, [config for config, _ in records]))
    assert (2 * kernel.blocks * kernel.threads * kernel.multiply_adds == layer.flop).all()


def test_a_ranking_is_compared_by_ranks_and_by_its_first() -> None:
    measured_s = np.array([5.0, 1.0, 3.0, 2.0, 4.0, 6.0, 7.0, 8.0])
    perfect = model.ranking("model", measured_s**2, measured_s)
    assert perfect == {"model_spearman": "1.00", "model_kendall": "1.00", "model_best_of_5": "1.00"}
    reverse = model.ranking("model", -measured_s, measured_s)
    assert reverse["model_spearman"] == "-1.00" and reverse["model_best_of_5"] == "4.00"


def test_the_best_known_configs_of_a_file_are_ranked(tmp_path: Path) -> None:
    with (HOME / "docs/results/data/tophub_v100.csv").open() as whole:
        few = tmp_path / "few.csv"
        few.write_text("".join(whole.readlines()[:2]))
    (row,) = model.rows_of_best(str(few))
    assert row["layer"] == "conv2d 1024->256 k3x3 s1 36x16" and 0 <= float(row["better_by_model"]) <= 1
    assert float(row["direct_over_winograd"]) == pytest.approx(418.399 / 172.94, abs=0.01)


def test_the_assembler_and_the_model_are_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(resources, "WORKLOADS", {"gemm": resources.WORKLOADS["gemm"]})
    monkeypatch.setattr(sys, "argv", ["", "--configs", "1", "--architectures", "sm_90"])
    resources.main()
    (row,) = csv.DictReader(StringIO(capsys.readouterr().out))
    assert row["shared_bytes"] == row["model_shared_bytes"]
    assert 0 < float(row["occupancy"]) <= 1 and 16 <= int(row["registers"]) <= 255


def run_all(folder: Path) -> None:
    options = ["--target", "cuda", "--folder", str(folder), "--minutes", "9", "--self-test"]
    command = [sys.executable, "-m", WHOLE, *options]
    made = subprocess.run(command, env=build_environment(), capture_output=True, text=True, timeout=900)
    assert made.returncode == 0, made.stderr


@pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))
def test_the_whole_command_on_an_emulated_gpu(tmp_path: Path) -> None:
    run_all(tmp_path)
    launched, *_ = read_rows(tmp_path / "launches.csv")
    assert (launched["configs"], launched["ok"]) == ("2", "2")
    (network,) = read_rows(tmp_path / "networks.csv")
    assert (network["network"], network["engine"], network["trials"]) == ("squeezenet1_1", "anole", "2")
    runs = read_rows(tmp_path / "layers.csv")
    assert {(run["layer"], run["trials"]) for run in runs} == {("small", "20")}
    assert [run["variant"] for run in runs] == ["random", "anole"]
    assert all(float(run["ratio_at_16"]) > 0 for run in runs)
    measured = {path: path.read_bytes() for path in tmp_path.glob("*.csv*")}

    run_all(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.glob("*.csv*")} == measured


def test_without_a_gpu_nothing_is_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", WHOLE, "--target", "cuda", "--folder", str(tmp_path / "results")]
    made = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert made.returncode != 0
    assert "cannot measure on this machine: " in made.stderr
    assert not (tmp_path / "results").exists()
