"""The evaluate stage: it compares builds with their references and rejects wrong ones."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from anole.documents.build import TensorInfo
from anole.documents.evaluation import Evaluation, read_evaluation
from anole.errors import BuildError, DocumentError
from anole.evaluate.comparison import Comparison
from anole.evaluate.correctness.winograd_error import has_large_rounding_error
from anole.evaluate.device import _latency
from anole.evaluate.engines import Engine
from anole.evaluate.stage import _sample_errors, evaluate_build

from ..tiny_builds import HOME, run_python
from .correctness.test_perturbation import engine

SCRIPT = """
import json, logging, shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
import numpy as np
import torch
import tiny
from anole.compiler.recorded import compile_with_random_weights
from anole.documents.build import read_build, write_build
from anole.errors import AnoleError
from anole.evaluate.correctness.winograd_error import has_large_rounding_error
from anole.evaluate.stage import evaluate_build
from anole.evaluate.timing.turns import TurnSchedule
from anole.config.entries import ModelSpec
from anole.targets.cpu.settings import describe_cpu
from tests.tiny_builds import compile_untuned

def compiled(name, source, **inputs):
    compile_untuned(ModelSpec("net", source, inputs), Path(name))

def pretended(name, built, source):
    "Copies a build with the entry of a different network."
    shutil.copytree(built, name)
    build = read_build(Path(built))
    write_build(Path(name), replace(build, name=name, entry={**build.entry, "source": source}))

def faint(path, noise):
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 8)
    layer.bias.data -= 20
    layer.weight.data *= 1 + noise * torch.randn(8, 8)
    torch.onnx.export(torch.nn.Sequential(layer, torch.nn.Sigmoid()), (torch.zeros(4, 8),), path, verbose=False)

class Deep(torch.nn.Module):
    def __init__(self, noise):
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.head = torch.nn.Conv2d(3, 8, 1), torch.nn.Conv2d(8, 4, 1)
        self.layers = torch.nn.ModuleList(torch.nn.Conv2d(8, 8, 3, padding=1) for _ in range(16))
        self.layers[8].weight.data *= 1 + noise * torch.randn(8, 8, 3, 3)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = torch.relu(x + layer(x))
        return self.head(x)

def quantized(path, noise):
    from onnxruntime.quantization import QuantFormat, quantize_static
    network, image = Deep(noise).eval(), torch.randn(1, 3, 64, 64)
    torch.onnx.export(network, (image,), "float.onnx", input_names=["x"], dynamo=False, verbose=False)
    samples = iter([{"x": image.numpy()}])
    reader = SimpleNamespace(get_next=lambda: next(samples, None))
    quantize_static("float.onnx", path, reader, quant_format=QuantFormat.QDQ, per_channel=True)

torch.onnx.export(tiny.residual().eval(), (torch.zeros(1, 3, 16, 16),), "net.onnx", verbose=False)
faint("faint.onnx", 0)
faint("noisy.onnx", 0.01)
compiled("torch", "torch:tiny:residual", x=(1, 3, 16, 16))
pretended("wrong", "torch", "torch:tiny:residual_of_other_weights")
pretended("noisy_stem", "torch", "torch:tiny:residual_with_noise_in_stem")
pretended("noisy_head", "torch", "torch:tiny:residual_with_noise_in_head")
compiled("onnx", "onnx:net.onnx", x=(1, 3, 16, 16))
bf16 = {**describe_cpu(threads=1), "precision": "bf16"}
compile_untuned(ModelSpec("net", "torch:tiny:residual", {"x": (1, 3, 16, 16)}), Path("bf16"), bf16)
pretended("bf16_and_wrong", "bf16", "torch:tiny:residual_of_other_weights")
quantized("bytes.onnx", 0)
quantized("other_bytes.onnx", 0.2)
compiled("bytes", "onnx:bytes.onnx")
pretended("bytes_and_wrong", "bytes", "onnx:other_bytes.onnx")
int4 = {**describe_cpu(threads=1), "weights": "int4"}
torch.manual_seed(0)
torch.onnx.export(tiny.perceptron().eval(), (torch.zeros(2, 64),), "perceptron.onnx", verbose=False)
compile_untuned(ModelSpec("net", "torch:tiny:perceptron", {"x": (2, 64)}), Path("int4"), int4)
compile_untuned(ModelSpec("net", "onnx:perceptron.onnx", {}), Path("int4_file"), int4)
pretended("int4_and_wrong", "int4", "torch:tiny:perceptron_with_noise")
np.save("own.npy", 10 * torch.randn(3, 2, 64).numpy())
sampled = ModelSpec("net", "torch:tiny:perceptron", {"x": (2, 64)}, "own.npy")
compile_untuned(sampled, Path("sampled"))
compile_untuned(replace(sampled, source="torch:tiny:clipped_perceptron"), Path("clipped"))
pretended("wrong_on_samples", "clipped", "torch:tiny:perceptron")
shutil.rmtree("clipped")
compiled("faint", "onnx:faint.onnx")
pretended("faint_and_wrong", "faint", "onnx:noisy.onnx")
compiled("shy", "torch:tiny:shy", x=(1, 3, 16, 16))
shutil.copytree("shy", "shy_and_wrong")
compiled("rounded_otherwise", "torch:tiny:delicate_rounded_otherwise", x=(4, 64))
pretended("delicate", "rounded_otherwise", "torch:tiny:delicate")
pretended("delicate_and_wrong", "rounded_otherwise", "torch:tiny:delicate_with_noise")

def compile_wrongly(build, folder):
    shutil.copytree("shy", folder)

logging.basicConfig(filename="log.txt", level=logging.INFO, force=True)
failures = {}
for path in sorted(Path().glob("*/build.json")):
    name = path.parent.name
    again = compile_wrongly if name == "shy_and_wrong" else compile_with_random_weights
    try:
        evaluate_build(path.parent, Path(f"{name}.json"), again, TurnSchedule(5, min_burst_s=0.01, pause_s=0.0))
    except AnoleError as error:
        failures[name] = str(error)
rounding = {name: has_large_rounding_error(Path(name)) for name in ("torch", "faint", "shy", "bf16")}
print(json.dumps([failures, rounding]))
"""

REFUSED = {
    "wrong": "wrong: the outputs differ from torch's: relative error ",
    "bf16_and_wrong": "bf16_and_wrong: the outputs differ from torch's: relative error ",
    "int4_and_wrong": "int4_and_wrong: the outputs differ from torch's: relative error ",
    "noisy_stem": "noisy_stem: the outputs differ from torch's: ",
    "noisy_head": "noisy_head: the outputs differ from torch's: ",
    "faint_and_wrong": "faint_and_wrong: the outputs differ from onnxruntime's: ",
    "bytes_and_wrong": "bytes_and_wrong: the outputs differ from onnxruntime's: ",
    "wrong_on_samples": "wrong_on_samples: the outputs differ from torch's: relative error ",
    "shy_and_wrong": "shy_and_wrong: with random weights, to make the outputs depend on the input, the outputs ",
    "delicate_and_wrong": "delicate_and_wrong: the outputs differ from torch's: ",
}


@dataclass(frozen=True)
class Evaluated:
    """The folder of all evaluations, the errors of failed ones, and whether some builds round too much."""

    folder: Path
    errors: dict[str, str]
    rounding: dict[str, bool]

    @property
    def log(self) -> str:
        return (self.folder / "log.txt").read_text()

    def read(self, name: str) -> Evaluation:
        return read_evaluation(self.folder / f"{name}.json")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    folder = tmp_path_factory.mktemp("evaluate")
    shutil.copy(HOME / "tests/tiny_networks.py", folder / "tiny.py")
    return Evaluated(folder, *json.loads(run_python(folder, "-c", SCRIPT).stdout.splitlines()[-1]))


@pytest.mark.guard
def test_only_wrong_builds_are_rejected(evaluated: Evaluated) -> None:
    assert set(evaluated.errors) == set(REFUSED)
    for name, message in REFUSED.items():
        limit = "0.01" if name.startswith(("bf16", "int4")) else "0.0001"
        assert evaluated.errors[name].startswith(message) and f"at most {limit} is allowed" in evaluated.errors[name]
    assert all(latency.relative_error > 1e-2 for latency in evaluated.read("wrong").latencies)


@pytest.mark.guard
def test_a_model_is_compared_with_its_references(evaluated: Evaluated) -> None:
    evaluation = evaluated.read("torch")
    assert (evaluation.build, evaluation.threads, evaluation.coverage_share) == ("torch", 1, 0.0)
    assert [latency.reference for latency in evaluation.latencies] == ["torch", "onnxruntime"]
    assert [latency.reference for latency in evaluated.read("onnx").latencies] == ["onnxruntime"]
    for latency in evaluation.latencies:
        assert latency.relative_error < 1e-5
        assert latency.rounds == 5
        assert latency.speedup > 0
        assert 0 < latency.latency_s < 0.1 and latency.latency_std_s is not None and latency.latency_std_s >= 0
        assert latency.output_variation is not None and 0.01 < latency.output_variation < 1
        assert latency.variation_error is not None
        assert latency.relative_error / 10 < latency.variation_error < 1e-4
    assert evaluation.redrawn_error is None and evaluation.exact_error is None


@pytest.mark.guard
def test_a_build_is_compared_on_the_models_own_samples(evaluated: Evaluated) -> None:
    (errors,) = evaluated.read("sampled").sample_errors or ()
    assert (errors.reference, errors.samples, errors.same_top_1) == ("torch", 3, 3) and errors.relative_error < 1e-5
    assert f"sampled: {errors}" in evaluated.log and evaluated.read("torch").sample_errors is None


def test_top_1_counts_the_samples_with_the_same_largest_score() -> None:
    samples = [[np.array([[1.0, 2.0], [4.0, 3.0]], "f4")], [np.array([[0.0, 3.0], [1.0, 2.0]], "f4")]]
    engines = [engine(lambda x: x), engine(lambda x: np.add(x, [0, 2]))]
    runner: Any = SimpleNamespace(engine=lambda *_: engines[1], references=lambda *_: nullcontext(engines[:1]))
    build: Any = SimpleNamespace(name="net", outputs=[TensorInfo("scores", (2, 2), "float32")])
    (errors,) = _sample_errors(runner, Path("net"), build, samples)
    assert (errors.output, errors.samples, errors.same_top_1) == ("scores", 2, 1)
    assert errors.relative_error == pytest.approx(np.sqrt(8 / 14))  # the second sample's: |(2, 2)| / |(0, 3, 1, 2)|


@pytest.mark.guard
def test_a_deep_quantized_network_is_compared_without_fusion_and_on_average(evaluated: Evaluated) -> None:
    right, wrong = evaluated.read("bytes"), evaluated.read("bytes_and_wrong")
    assert right.precision == right.latencies[0].reference_precision == "int8"
    assert "bytes: differs from a reference; computing the network without fusing its operators" in evaluated.log
    assert right.exact_error is not None and wrong.exact_error is not None and wrong.exact_error > 1e-2
    if right.exact_error > 1e-4:
        assert right.averaged_error is not None and right.averaged_error < 1e-2
    assert wrong.averaged_error is not None and wrong.averaged_error > 1e-2


@pytest.mark.guard
def test_constant_outputs_are_compared_with_random_weights(evaluated: Evaluated) -> None:
    evaluation = evaluated.read("shy")
    assert evaluation.redrawn_error is not None and 0 < evaluation.redrawn_error < 1e-4
    assert all(latency.output_variation < 1e-6 for latency in evaluation.latencies)
    assert all(latency.relative_error < 1e-6 for latency in evaluated.read("shy_and_wrong").latencies)
    log = evaluated.log
    assert "shy: outputs that do not depend on the input cannot be checked" in log and "output (by " in log


@pytest.mark.guard
def test_double_precision_overrules_an_inexact_reference(evaluated: Evaluated) -> None:
    evaluation = evaluated.read("faint")
    assert evaluation.latencies[0].relative_error > 1e-2
    assert evaluation.exact_error is not None and evaluation.exact_error < 1e-5
    assert "faint: the outputs differ from onnxruntime's by " in evaluated.log
    # Such an inexact reference does not show the error that single precision may have.
    assert evaluation.reference_exact_error is not None and evaluation.reference_exact_error > 3e-3


@pytest.mark.guard
@pytest.mark.parametrize("name", ["int4", "int4_file"])
def test_builds_with_rounded_weights_match_a_rounded_reference(evaluated: Evaluated, name: str) -> None:
    evaluation = evaluated.read(name)
    assert evaluation.latencies[0].relative_error > 1e-2 and evaluation.narrow_error is None
    assert evaluation.rounded_error is not None and evaluation.rounded_error < 1e-5
    assert evaluation.precision == "float32, weights in int4"
    assert {latency.reference_precision for latency in evaluation.latencies} == {"float32"}
    assert f"{name}: the outputs differ from " in evaluated.log


@pytest.mark.guard
def test_a_build_may_be_about_as_inexact_as_its_references(evaluated: Evaluated) -> None:
    evaluation = evaluated.read("delicate")
    assert evaluation.exact_error is not None and evaluation.reference_exact_error is not None
    assert 1e-4 < evaluation.exact_error < 3 * evaluation.reference_exact_error < 9e-3


@pytest.mark.guard
@pytest.mark.parametrize(("name", "min_error"), [("delicate_and_wrong", 1e-2), ("faint_and_wrong", 1e-3)])
def test_one_percent_of_noise_is_detected(evaluated: Evaluated, name: str, min_error: float) -> None:
    exact = evaluated.read(name).exact_error
    assert exact is not None and exact > min_error
    assert f"{exact:.2g} from outputs computed in double" in evaluated.errors[name]


@pytest.mark.guard
def test_doubtful_builds_are_detected_after_compiling(evaluated: Evaluated) -> None:
    assert evaluated.rounding == {"torch": False, "faint": True, "shy": True, "bf16": False}


def test_a_build_for_a_different_machine_is_not_run() -> None:
    assert not has_large_rounding_error(HOME / "tests/old_records/builds/residual-board-anole")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no such file"),
        ("{", "is not JSON: "),
        ("{}", "name is missing"),
        ('{"schema": 2}', "found schema 2; this version of Anole reads 1"),
    ],
)
def test_a_folder_without_a_build_is_an_error(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "build.json").write_text(text)
    with pytest.raises(DocumentError, match=message) as caught:
        evaluate_build(tmp_path, tmp_path / "evaluation.json")
    assert str(caught.value).endswith("; `snakemake --forcerun compile` writes it again")


def test_a_simulator_has_no_latency_under_load(tmp_path: Path) -> None:
    folder = HOME / "tests/old_records/builds/residual-accelerator-dcoc"
    with pytest.raises(BuildError, match="is for a simulator, which has no latency under load; leave out --neigh"):
        evaluate_build(folder, tmp_path / "evaluation.json", neighbours=(0, 1))
    assert not (tmp_path / "evaluation.json").exists()


def test_the_speedup_is_robust_against_changes_between_rounds() -> None:
    fast, slow, torch = np.full(3, 1e-3), np.full(3, 2e-3), Engine("torch", tuple, list)
    times = {"build": [fast, fast, slow, slow, slow], "torch": [2 * fast, 2 * fast, 2 * slow, 2 * slow, fast]}
    assert _latency(torch, Comparison(0.0, (1.0,), 0.0), times).speedup == pytest.approx(2.0)


@pytest.mark.guard
def test_the_option_rounds_sets_the_number_of_turns(tiny_project: Path, tmp_path: Path) -> None:
    path = tmp_path / "evaluation.json"
    run_python(tiny_project, "-m", "anole", "evaluate", "net", "--rounds", "2", "--output", str(path))
    assert [latency.rounds for latency in read_evaluation(path).latencies] == [2, 2]
