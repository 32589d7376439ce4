"""One build serves every size of a range like a build of that size, and rejects all other sizes."""

from __future__ import annotations

import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
from tvm.runtime.vm import VirtualMachine

from anole.compiler import device
from anole.compiler.build import BuildSettings, compile_build
from anole.compiler.passes.small_sizes import SMALL_WEIGHTS, with_small_sizes
from anole.config.entries import ModelSpec
from anole.documents.build import Build, read_build
from anole.documents.evaluation import read_evaluation
from anole.errors import BuildError, ExtractError
from anole.extract.stage import extract_tasks
from anole.extract.torch import example_inputs, make_network, run_network
from anole.record import Config
from anole.report.run import describe_build, run_build
from anole.targets import get_target
from anole.targets.base import Target
from anole.targets.cpu.device.precision import precisions_of
from anole.targets.cpu.settings import describe_cpu
from anole.task import Workload

from ..tiny_builds import RANGED
from .conftest import SHAPES

SETTINGS = BuildSettings("net-cpu", "anole", 0, False, 0)


def spec(name: str, extents: list[object]) -> ModelSpec:
    return ModelSpec.from_json(name, {"source": f"torch:tiny:{name}", "inputs": {"x": extents}})


def make(model: ModelSpec, folder: Path, target: Target | None = None) -> Build:
    target = target or get_target(describe_cpu())
    manifest, _ = extract_tasks(model, "cpu", target)
    return compile_build(model, manifest, SETTINGS, {}, folder)


def run(folder: Path, *inputs: np.ndarray) -> list[np.ndarray]:
    machine = VirtualMachine(tvm.runtime.load_module(str(folder / "model.so")), tvm.cpu())
    found = machine["main"](*map(tvm.runtime.tensor, inputs))
    return [found.numpy()] if isinstance(found, tvm.runtime.Tensor) else [each.numpy() for each in found]


def check(folder: Path, model: ModelSpec, network: torch.nn.Module, **sizes: int) -> None:
    """Assert that a build computes what torch computes at these sizes."""
    arguments = example_inputs(model.at(sizes))
    expected = run_network(model, network, arguments)
    found = run(folder, *(each.numpy() for each in arguments.values()))
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "name", ["residual", "branches", "joined", "varied", "gated", "summed", "enlarged", "norm_first"]
)
def test_all_batch_sizes_match_torch(project: Path, name: str) -> None:
    model = spec(name, [{"batch": "1..6"}, *SHAPES[name][1:]])
    build = make(model, project / "net")
    assert read_build(project / "net") == build
    assert build.inputs[0].varying == ("batch", *[None] * (len(SHAPES[name]) - 1))
    network = make_network(model)
    for size in (1, 2, 3, 5, 6):
        check(project / "net", model, network, batch=size)


@pytest.mark.parametrize("name", sorted(RANGED))
def test_all_lengths_and_batch_sizes_match_torch(name: str, project: Path) -> None:
    model = RANGED[name]
    build = make(model, project / "net")
    assert all(task.unscheduled is None for task in build.tasks)
    assert any("attention" in task.label for task in build.tasks) == (name not in ("reduced", "listened"))
    network = make_network(model)
    for tokens in (3, 7, 16, 17, 31, 40):
        for batch in ({"n": 1}, {"n": 3}) if "n" in model.ranges else ({},):
            check(project / "net", model, network, tokens=tokens, **batch)


@pytest.mark.parametrize("name", ["residual", "attended"])
def test_low_precision_is_used_at_all_sizes(name: str, project: Path) -> None:
    target = get_target(describe_cpu())
    if "bf16" in precisions_of(target.description["features"]):
        target = get_target(describe_cpu(precision="bf16"))
    extents, axes = ([3, 16, 16], {0: "n"}) if name == "residual" else ([17, 32], {0: "n", 1: "tokens"})
    network = make_network(spec(name, [2, *extents]))
    given = (torch.zeros(2, *extents),)
    torch.onnx.export(network, given, "net.onnx", input_names=["x"], dynamic_axes={"x": axes}, dynamo=False)
    quantize_static("net.onnx", "bytes.onnx", RandomSamples(extents), per_channel=True, quant_format=QuantFormat.QDQ)
    dims = {axis: "1..6" if axis == "n" else "3..40" for axis in axes.values()}
    for file, dtype in (("net.onnx", "bfloat16"), ("bytes.onnx", "uint8")):
        model = ModelSpec.from_json("net", {"source": f"onnx:{file}", "inputs": {}, "dims": dims})
        build = make(model, project / file.removesuffix(".onnx"), target)
        assert dtype in {kernel.dtype for kernel in build.kernels or ()} or dtype not in target.dtypes
        for size in (1, 3, 6):
            own = extents if name == "residual" else [6 * size + 4, 32]
            array = np.random.default_rng(size).standard_normal((size, *own), np.float32)
            (found,) = run(project / file.removesuffix(".onnx"), array)
            expected = network(torch.from_numpy(array)).detach().numpy()
            assert np.linalg.norm(found - expected) < 0.05 * np.linalg.norm(expected)


def test_weight_quantization_serves_a_range(project: Path) -> None:
    build = make(spec("perceptron", [{"n": "1..8"}, 64]), project / "net", get_target(describe_cpu(weights="int8")))
    assert {kernel.weights for kernel in build.kernels or () if kernel.task} == {"int8"}
    network = make_network(spec("perceptron", [2, 64]))
    for size in (1, 3, 8):
        array = np.random.default_rng(size).standard_normal((size, 64), np.float32)
        (found,) = run(project / "net", array)
        expected = network(torch.from_numpy(array)).detach().numpy()
        assert np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)


class RandomSamples(CalibrationDataReader):
    """Random inputs for calibrating a file."""

    def __init__(self, extents: list[int]) -> None:
        arrays = (np.random.default_rng(seed).standard_normal((2, *extents), np.float32) for seed in range(4))
        self.inputs = iter([{"x": array} for array in arrays])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.inputs, None)


def test_only_the_batch_of_a_convolution_may_vary(project: Path) -> None:
    with pytest.raises(ExtractError, match=r"found a convolution with data of shape \[1, .*, 3\]; only the batch"):
        make(spec("residual", [1, 3, {"height": "8..24"}, 16]), project / "net")


def test_small_sizes_have_a_program_and_weights_of_their_own(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "tiny.py").write_text("from torch import nn\ndef one(): return nn.Conv2d(32, 32, 3, padding=1)\n")
    model, target = spec("one", [{"batch": "1..16"}, 32, 7, 7]), get_target(describe_cpu())
    tile_sizes, merged = {4: 4, 1: 2}, list[tvm.IRModule]()

    def tiled(_: Target, workload: Workload) -> Config:
        space = target.space(workload)
        configs = map(space.config, space.sample(200, np.random.default_rng(0)))
        return next(each for each in configs if each.get("tile_size") == tile_sizes[workload.batch])

    def record(*modules: tvm.IRModule) -> tvm.IRModule:
        merged.append(with_small_sizes(*modules))
        return merged[-1]

    monkeypatch.setattr(type(target), "default_config", tiled)
    monkeypatch.setattr(device, "with_small_sizes", record)
    make(model, project / "net", target)
    (module,) = merged
    assert [name for _, func in module.functions_items() for name in map(str, func.params)].count(SMALL_WEIGHTS) == 1
    network = make_network(model)
    for size in (1, 2, 3, 16):
        check(project / "net", model, network, batch=size)


def test_threads_with_a_model_each_share_the_library_and_get_their_own_results(project: Path) -> None:
    make(spec("residual", [{"batch": "1..6"}, 3, 16, 16]), project / "net")
    model = runpy.run_path(str(project / "net" / "load.py"))["Model"]
    alone = model()
    arrays = [np.random.default_rng(size).standard_normal((size, 3, 16, 16), np.float32) for size in (1, 2, 5, 6)]
    expected = [alone(array) for array in arrays]

    def is_correct(at: int) -> bool:
        own = model()
        return all(np.array_equal(own(arrays[at])[0], expected[at][0]) for _ in range(20))

    with ThreadPoolExecutor(len(arrays)) as pool:
        assert all(pool.map(is_correct, range(len(arrays))))


def test_a_dynamic_dimension_of_an_onnx_file_may_be_a_range(project: Path) -> None:
    network = make_network(spec("residual", [2, 3, 16, 16]))
    axes = {"x": {0: "images"}}
    inputs = (torch.zeros(2, 3, 16, 16),)
    torch.onnx.export(network, inputs, "net.onnx", input_names=["x"], dynamic_axes=axes, dynamo=False)
    model = ModelSpec.from_json("net", {"source": "onnx:net.onnx", "inputs": {}, "dims": {"images": "1..6"}})
    make(model, project / "net")
    for size in (1, 4, 6):
        array = torch.rand(size, 3, 16, 16)
        (found,) = run(project / "net", array.numpy())
        np.testing.assert_allclose(found, network(array).detach().numpy(), rtol=1e-3, atol=1e-4)


def test_sizes_outside_the_range_are_rejected(project: Path) -> None:
    folder = project / "net"
    make(spec("twins", [{"batch": "2..4"}, 8, 10, 10]), folder)
    array = np.zeros((64, 8, 10, 10), np.float32)
    np.save(project / "x.npy", array)
    with pytest.raises(
        BuildError, match=r"x: found shape \[64, .*expected float32 of shape \[batch, 8, 10, 10\], batch 2..4"
    ):
        run_build(folder, [project / "x.npy"])
    np.save(project / "x.npy", array[:3])
    (output,) = run_build(folder, [project / "x.npy"]).values()
    assert output.shape == (3, 8, 10, 10)
    assert "float32 [batch, 8, 10, 10]" in describe_build(folder) and "batch may be 2..4" in describe_build(folder)
    loaded = runpy.run_path(str(folder / "load.py"))["Model"]()
    assert [each.shape for each in loaded(array[:2])] == [(2, 8, 10, 10)]
    with pytest.raises(ValueError, match="x: batch is 64; this build serves"):
        loaded(array)
    # With other loaders, TVM itself rejects the size, as it plans memory for the largest one.
    with pytest.raises(RuntimeError, match="storage allocation failure"):
        run(folder, array)


def test_a_size_dependent_graph_is_rejected(project: Path) -> None:
    (project / "tiny.py").write_text(SIZE_DEPENDENT)
    for name, problem in {
        "counted": r"\d+ operators at batch 2, \d+ at batch 3",
        "scaled": "computes with",
        "even": "a size is 2, 2, 6 at batch 2; batch 3; batch 6; allowed: sums of products",
        "lstm": r"a recurrent layer has steps = batch \* 2",
    }.items():
        with pytest.raises(
            ExtractError, match=rf"model {name}: no network serves all sizes of batch: 1..6: .*({problem})"
        ):
            make(spec(name, [{"batch": "1..6"}, 4]), project / "net")
    assert not (project / "net").exists()


def test_tasks_are_those_of_the_typical_size(project: Path) -> None:
    target = get_target(describe_cpu())
    models = [spec("residual", [each, 3, 16, 16]) for each in ({"batch": "1..16"}, {"batch": "2..20"}, 4)]
    one, other, fixed = ([task.key for task in extract_tasks(model, "cpu", target)[1]] for model in models)
    assert one == other == fixed


def test_references_and_builds_have_the_same_weights_at_all_sizes(project: Path) -> None:
    model = spec("residual", [{"batch": "1..6"}, 3, 16, 16])
    one, two = (make_network(model.at({"batch": size}), "random").state_dict() for size in (1, 5))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_build_is_evaluated_at_sizes_of_its_range(project: Path) -> None:
    build = make(spec("residual", [{"batch": "1..6"}, 3, 16, 16]), project / "net")
    code = "import sys; from pathlib import Path; from anole.evaluate.stage import evaluate_build as e; "
    code += "from anole.evaluate.timing.turns import TurnSchedule as T; e(Path('net'), Path('found.json'), None, T(3))"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=project)
    found = read_evaluation(project / "found.json")
    assert found.sizes_latencies is not None and build.ranges is not None
    assert [each.sizes["batch"] for each in found.sizes_latencies] == [1, 5, 6]
    assert all(latency.relative_error < 1e-4 for each in found.sizes_latencies for latency in each.latencies)


SIZE_DEPENDENT = """
import torch
from torch import nn

class Counted(nn.Module):
    def forward(self, x):
        for _ in range(x.shape[0]):
            x = torch.exp(-x)
        return x

class Scaled(nn.Module):
    def forward(self, x):
        return x * torch.full((4,), x.shape[0] ** 0.5)

class Even(nn.Module):
    def forward(self, x):
        return torch.exp(x[: x.shape[0] // 2 * 2])

class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(4, 4)

    def forward(self, x):
        return self.layer(torch.cat([x, x])[:, None])[0]

counted, scaled, even, lstm = Counted, Scaled, Even, Lstm
"""
