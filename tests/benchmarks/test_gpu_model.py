"""The comparisons of the model of CUDA kernels: AutoTVM's records are read as they are meant, and ranks are ranks."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from anole.task import Conv2d
from benchmarks.gpu import model as gpu_model
from benchmarks.gpu import resources as gpu_resources

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


def test_a_log_has_the_configs_that_ran_with_what_is_staged_at_once(log: Path) -> None:
    ((layer, records),) = gpu_model.read_log(log).items()
    assert layer == LAYER
    assert [latency_s for _, latency_s in records] == [1e-4, 3e-4]
    columns = gpu_model.columns_of(layer, [config for config, _ in records])
    assert columns["tile_f"][0].tolist() == [4, 1, 32, 1] and columns["tile_y"][0].tolist() == [7, 1, 2, 1]
    assert columns["tile_rc"][0].tolist() == [32, 8] and columns["tile_ry"][0].tolist() == [1, 3]
    assert columns["auto_unroll_max_step"].tolist() == [512, 512]


def test_the_other_layout_multiplies_as_often(log: Path) -> None:
    ((layer, records),) = gpu_model.read_log(log).items()
    kernel = gpu_model.nchw_kernel(
        gpu_model.GPUS["V100"], layer, gpu_model.columns_of(layer, [config for config, _ in records])
    )
    assert (2 * kernel.blocks * kernel.threads * kernel.multiply_adds == layer.flop).all()


def test_a_ranking_is_compared_by_ranks_and_by_its_first() -> None:
    measured_s = np.array([5.0, 1.0, 3.0, 2.0, 4.0, 6.0, 7.0, 8.0])
    perfect = gpu_model.ranking("model", measured_s**2, measured_s)
    assert perfect == {"model_spearman": "1.00", "model_kendall": "1.00", "model_best_of_5": "1.00"}
    reverse = gpu_model.ranking("model", -measured_s, measured_s)
    assert reverse["model_spearman"] == "-1.00" and reverse["model_best_of_5"] == "4.00"


def test_the_best_known_configs_of_a_file_are_ranked(tmp_path: Path) -> None:
    with (HOME / "docs/results/data/tophub_v100.csv").open() as whole:
        few = tmp_path / "few.csv"
        few.write_text("".join(whole.readlines()[:2]))
    (row,) = gpu_model.of_best(str(few))
    assert row["layer"] == "conv2d 1024->256 k3x3 s1 36x16" and 0 <= float(row["better_by_model"]) <= 1
    assert float(row["direct_over_winograd"]) == pytest.approx(418.399 / 172.94, abs=0.01)


def test_the_assembler_and_the_model_are_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(gpu_resources, "WORKLOADS", {"gemm": gpu_resources.WORKLOADS["gemm"]})
    monkeypatch.setattr(sys, "argv", ["gpu_resources.py", "--configs", "1", "--architectures", "sm_90"])
    gpu_resources.main()
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["shared_bytes"] == row["model_shared_bytes"]
    assert 0 < float(row["occupancy"]) <= 1 and 16 <= int(row["registers"]) <= 255
