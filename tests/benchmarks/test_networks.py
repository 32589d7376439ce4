"""Network benchmarks: a comparison with other engines on a tiny build, the report of known figures, small networks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

from anole.config.reading import parse_spec
from anole.config.yaml_file import read_yaml
from anole.errors import BuildError
from anole.evaluate.correctness.check import MAX_RELATIVE_ERROR
from anole.evaluate.engines import export_onnx, onnxruntime_engine
from anole.merge.database import merge_files
from anole.record import Measurement, Run, Status, Trial
from anole.store.shard import Shard
from anole.task import Dense, Task
from benchmarks.networks import small
from benchmarks.networks.compare import COLUMNS, effort
from benchmarks.networks.engines import ncnn_engine
from benchmarks.networks.picture import draw
from benchmarks.networks.report import networks_of, report

from ..tiny_builds import HOME
from .conftest import Benchmark


def test_a_build_is_compared_with_the_rivals_that_start(benchmark: Benchmark) -> None:
    rows, said = benchmark("networks.compare", "net", "elsewhere", "--rounds", "3", "--rivals", "torch")
    assert [row["engine"] for row in rows] == ["anole", "torch"]
    for row in rows:
        assert (row["network"], row["batch"], row["threads"], row["rounds"]) == ("net", "2", "1", "3")
        assert 0 < float(row["latency_q1_ms"]) <= float(row["latency_ms"]) <= float(row["latency_q3_ms"])
        assert float(row["relative_error"]) <= MAX_RELATIVE_ERROR
        assert (row["tuning_s"], row["trials_measured"]) == ("", "")
    assert rows[0]["speedup"] == "1" and rows[1]["relative_error"] == "0"
    assert "elsewhere: was not compared: elsewhere/build.json: there is no such file" in said


def test_ncnn_computes_the_outputs_of_torch_or_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ncnn", reason="ncnn is not installed (the group `rivals`)")
    x, path = torch.randn(2, 3, 9, 10), tmp_path / "model.onnx"
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(448, 5)).eval()
    with torch.inference_mode():
        expected = network(x)
    export_onnx(network, (x,), path)
    (output,) = ncnn_engine(path, [x.numpy()], threads=1).compute()
    torch.testing.assert_close(torch.from_numpy(output), expected, rtol=1e-4, atol=1e-5)
    reference = onnxruntime_engine(path, [2 * x.numpy()], threads=1)
    monkeypatch.setattr("benchmarks.networks.engines.onnxruntime_engine", lambda *_, **__: reference)
    with pytest.raises(BuildError, match="ncnn's outputs differ"):
        ncnn_engine(path, [x.numpy()], threads=1)


CPU = {"kind": "cpu", "mcpu": "znver4", "threads": 2}


def tune(shards: Path, task: Task, elapsed_s: Sequence[float]) -> Run:
    """Write a run whose trials ended after the given seconds."""
    run = Run(task.key, "autotvm", 0, 1, {}, 2, {"name": "here"}, {"python": "3.11"})
    measurement = Measurement(Status.OK, latency_s=1e-3, latency_std_s=0.0, cv=0.0, repeats=3, build_s=0.1, run_s=0.1)
    with Shard.open(shards, run, task) as shard:
        for number, seconds in enumerate(elapsed_s):
            config = {"tile_f": [number + 1, 16]}
            gflops = task.workload.flop / 1e-3 / 1e9
            shard.append_trial(Trial(number, 0, config, measurement, seconds, gflops, "2026-11-21T10:00:00.000Z"))
    return run


def test_tuning_time_is_the_sum_over_the_runs_of_a_build(tmp_path: Path) -> None:
    shards, database = tmp_path / "shards", tmp_path / "tuning.sqlite"
    first = tune(shards, Task(Dense(1, 512, 1000), CPU, 1), [0.5, 2.0])
    second = tune(shards, Task(Dense(1, 256, 10), CPU, 1), [1.0, 2.0, 4.25])
    tune(shards, Task(Dense(1, 128, 10), CPU, 1), [9.0])
    merge_files(shards, [], [], [], database)
    keys = [first.key, second.key, None]
    assert effort(keys, database) == {"tuning_s": 6.25, "trials_measured": 5}
    assert effort([*keys, "unknown"], database) == {}
    assert effort([None], database) == {}
    assert effort(keys, tmp_path / "absent.sqlite") == {}


def engines(network: str, batch: int, latency_ms: float, **speedups: float) -> list[dict[str, str]]:
    """Return the rows of a network: its own, and those of rivals with given speedups."""
    own = {"network": network, "batch": batch, "relative_error": 5e-7, "tuning_s": 136.6, "trials_measured": 768}
    return [
        {**dict.fromkeys(COLUMNS, ""), **{name: str(value) for name, value in {**own, **row}.items()}}
        for row in (
            {"engine": "anole", "speedup": 1, "latency_ms": latency_ms},
            *(
                {"engine": engine, "speedup": speedup, "latency_ms": speedup * latency_ms}
                for engine, speedup in speedups.items()
            ),
        )
    ]


ROWS = [
    *engines("resnet18", 1, 6.254, onnxruntime=1.8, torch=3.0),
    *engines("resnet50_onnx", 1, 12.0, onnxruntime=1.25, torch=3.0),
    *engines("own_net", 1, 0.5, onnxruntime=0.96),
    *engines("vgg16_n8", 8, 1234.0, onnxruntime=1.6),
]


def test_the_report_of_networks() -> None:
    lines = list(report(networks_of(ROWS)))
    assert "| ResNet-18 | 1 | 6.25 ms | 11.3 ms | 1.80x | 3.00x | 5e-7 | 137 s | 768 |" in lines
    assert "| own_net | 1 | 0.5 ms | 0.48 ms | 0.96x |  | 5e-7 | 137 s | 768 |" in lines
    assert "| VGG-16 | 8 | 1234 ms | 1974 ms | 1.60x |  | 5e-7 | 137 s | 768 |" in lines
    # The cube root of 1.8 * 1.25 * 0.96.
    assert "| ONNX Runtime | 3 | 1.29x | 0.96x | own_net |" in lines
    assert "| torch eager | 2 | 3.00x | 3.00x | ResNet-18 |" in lines
    assert not any("OpenVINO" in line for line in lines)


def test_the_plot_shows_each_network_at_batch_1_and_each_rival_that_ran(tmp_path: Path) -> None:
    networks = networks_of([*ROWS, *engines("alexnet", 1, 6.0, **{"openvino.default": 0.7})])
    draw(networks, tmp_path / "networks.svg")
    shown = (tmp_path / "networks.svg").read_text()
    assert all(f">{title}</text>" in shown for title in ("ResNet-18", "AlexNet", "own_net", "ONNX Runtime"))
    assert ">OpenVINO in its default precision</text>" in shown
    assert "torch.compile" not in shown and "VGG-16" not in shown


def test_all_small_networks_are_listed_with_their_inputs() -> None:
    listed = parse_spec(read_yaml(HOME / "examples/models.small.yaml"), project=HOME).models
    found = {name: (model.source, model.inputs["x"]) for name, model in listed.items()}
    networks = small.networks().items()
    assert found == {name: (f"torch:benchmarks.networks.small:{name}", shape) for name, (_, shape) in networks}


@pytest.mark.parametrize(
    ("name", "shape"),
    [("perceptron", (1, 10)), ("lenet", (1, 10)), ("gru_32_64_both", (1, 32, 128)), ("lstm_32_64_two", (1, 32, 64))],
)
def test_small_networks_take_their_inputs(name: str, shape: tuple[int, ...]) -> None:
    _, given = small.networks()[name]
    assert getattr(small, name)().eval()(torch.zeros(given)).shape == shape
