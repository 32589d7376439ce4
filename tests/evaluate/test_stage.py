"""An evaluation compares a build with its references and refuses one that computes something else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anole.documents.build import read_build, write_build
from anole.documents.evaluation import Evaluation, Latency, read_evaluation
from anole.errors import BuildError, DocumentError
from anole.evaluate.comparison import Comparison, relative_error
from anole.evaluate.device import _latency
from anole.evaluate.stage import _refuse_errors, _remedy, evaluate_build

from ..tiny_builds import run_python

# TVM takes its number of threads when it starts, hence a process of its own for everything that runs a build.
SCRIPT = """
import json, logging, os, shutil
from dataclasses import replace
os.environ["TVM_NUM_THREADS"] = "1"
from pathlib import Path
import torch
from anole.compile.build import BuildSettings, compile_build
from anole.documents.build import read_build, write_build
from anole.errors import AnoleError
from anole.evaluate.stage import evaluate_build
from anole.evaluate.interleave import Pace
from anole.extract.tasks import extract_tasks
from anole.targets.cpu.settings import describe_cpu
from anole.declared.entries import ModelSpec
from anole.targets import get_target
import tiny
from anole.compile.redrawn import compile_redrawn

torch.onnx.export(tiny.residual().eval(), (torch.zeros(1, 3, 16, 16),), "net.onnx", verbose=False)

def faint(path, noise):
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 8)
    layer.bias.data -= 20
    layer.weight.data *= 1 + noise * torch.randn(8, 8)
    torch.onnx.export(torch.nn.Sequential(layer, torch.nn.Sigmoid()), (torch.zeros(4, 8),), path, verbose=False)

faint("faint.onnx", 0)
faint("noisy.onnx", 0.01)
target = get_target(describe_cpu(threads=1))
said = {}
for name, source in (("torch", "torch:tiny:residual"), ("onnx", "onnx:net.onnx")):
    model = ModelSpec("net", source, {"x": (1, 3, 16, 16)})
    manifest, _ = extract_tasks(model, "cpu", target.description, target.template_version)
    compile_build(model, manifest, BuildSettings(name, "autotvm", 0, False, 0), {}, Path(name))
shutil.copytree("torch", "wrong")
build = read_build(Path("wrong"))
entry = {**build.entry, "source": "torch:tiny:residual_of_other_weights"}
write_build(Path("wrong"), replace(build, name="wrong", entry=entry))

def also(name, source):
    entry = {**build.entry, "source": source}
    shutil.copytree("torch", name)
    write_build(Path(name), replace(build, name=name, entry=entry))

for layer in ("stem", "head"):
    also(f"noisy_{layer}", f"torch:tiny:residual_with_noise_in_{layer}")

def compile_again(source, name, inputs):
    model = ModelSpec("net", source, inputs)
    manifest, _ = extract_tasks(model, "cpu", target.description, target.template_version)
    compile_build(model, manifest, BuildSettings(name, "autotvm", 0, False, 0), {}, Path(name))

compile_again("onnx:faint.onnx", "faint", {})
shutil.copytree("faint", "faint_and_wrong")
faint_build = read_build(Path("faint"))
noisy = {**faint_build.entry, "source": "onnx:noisy.onnx"}
write_build(Path("faint_and_wrong"), replace(faint_build, name="faint_and_wrong", entry=noisy))
compile_again("torch:tiny:shy", "shy", {"x": (1, 3, 16, 16)})
shutil.copytree("shy", "shy_and_wrong")

compile_again("torch:tiny:delicate_rounded_otherwise", "rounded_otherwise", {"x": (4, 64)})
otherwise = read_build(Path("rounded_otherwise"))
for name, source in (("delicate", "delicate"), ("delicate_and_wrong", "delicate_with_noise")):
    shutil.copytree("rounded_otherwise", name)
    write_build(Path(name), replace(otherwise, name=name, entry={**otherwise.entry, "source": f"torch:tiny:{source}"}))

def compile_wrongly(build, folder):
    shutil.copytree("shy", folder)
    return build

logging.basicConfig(filename="log.txt", level=logging.INFO)
names = ("torch", "onnx", "wrong", "noisy_stem", "noisy_head", "shy", "shy_and_wrong", "faint", "faint_and_wrong")
names += ("delicate", "delicate_and_wrong")
for name in names:
    again = compile_wrongly if name == "shy_and_wrong" else compile_redrawn
    try:
        pace = Pace(rounds=5, burst_s=0.01, pause_s=0.0)
        evaluate_build(Path(name), Path(f"{name}.json"), pace=pace, compile_redrawn=again)
    except AnoleError as error:
        said[name] = str(error)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The folder of three evaluations, and the errors of those that failed."""
    folder = tmp_path_factory.mktemp("evaluate")
    shutil.copy(Path(__file__).parents[1] / "tiny_networks.py", folder / "tiny.py")
    library = Path(__file__).parents[2] / "lib"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(library), str(folder)])}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return folder, json.loads(run.stdout.splitlines()[-1])


def read(folder: Path, name: str) -> Evaluation:
    return read_evaluation(folder / f"{name}.json")


@pytest.mark.guard
def test_a_torch_model_is_compared_with_torch_and_onnx_runtime(evaluated: tuple[Path, dict[str, str]]) -> None:
    folder, errors = evaluated
    evaluation = read(folder, "torch")
    assert "torch" not in errors
    assert (evaluation.build, evaluation.threads, evaluation.coverage_share) == ("torch", 1, 0.0)
    assert [latency.reference for latency in evaluation.latencies] == ["torch", "onnxruntime"]
    for latency in evaluation.latencies:
        assert latency.relative_error < 1e-5
        assert latency.rounds == 5
        assert latency.speedup > 0
        assert 0 < latency.latency_s < 0.1 and latency.latency_std_s >= 0


@pytest.mark.guard
def test_an_onnx_model_is_compared_with_onnx_runtime(evaluated: tuple[Path, dict[str, str]]) -> None:
    folder, errors = evaluated
    assert "onnx" not in errors
    assert [latency.reference for latency in read(folder, "onnx").latencies] == ["onnxruntime"]


@pytest.mark.guard
def test_a_wrong_build_is_recorded_and_refused(evaluated: tuple[Path, dict[str, str]]) -> None:
    folder, errors = evaluated
    assert errors["wrong"].startswith("wrong: the outputs differ from those of torch: relative error ")
    assert "at most 0.0001 is allowed" in errors["wrong"]
    assert all(latency.relative_error > 1e-2 for latency in read(folder, "wrong").latencies)


@pytest.mark.guard
@pytest.mark.parametrize("layer", ["stem", "head"])
def test_noise_of_one_percent_in_one_layer_is_refused(evaluated: tuple[Path, dict[str, str]], layer: str) -> None:
    _, errors = evaluated
    assert "the outputs differ from those of torch" in errors[f"noisy_{layer}"]


@pytest.mark.guard
def test_how_much_outputs_depend_on_the_input_is_told(evaluated: tuple[Path, dict[str, str]]) -> None:
    folder, _ = evaluated
    evaluation = read(folder, "torch")
    for latency in evaluation.latencies:
        assert latency.output_variation is not None and 0.01 < latency.output_variation < 1
        assert latency.variation_error is not None
        assert latency.relative_error / 10 < latency.variation_error < 1e-4
    assert evaluation.redrawn_error is None


@pytest.mark.guard
def test_outputs_that_do_not_depend_on_the_input_are_compared_with_other_weights(
    evaluated: tuple[Path, dict[str, str]],
) -> None:
    folder, errors = evaluated
    assert "shy" not in errors
    evaluation = read(folder, "shy")
    assert evaluation.redrawn_error is not None and 0 < evaluation.redrawn_error < 1e-4
    assert all(latency.output_variation < 1e-6 for latency in evaluation.latencies)
    line = next(line for line in (folder / "log.txt").read_text().splitlines() if "is not shown" in line)
    assert (
        "outputs do not depend on the input: correctness is not shown" in line
        and "shy: " in line
        and "output (by " in line
    )


@pytest.mark.guard
def test_an_error_that_only_other_weights_show_is_refused(evaluated: tuple[Path, dict[str, str]]) -> None:
    folder, errors = evaluated
    assert all(latency.relative_error < 1e-6 for latency in read(folder, "shy_and_wrong").latencies)
    assert "with other weights, drawn so that the outputs depend on the input" in errors["shy_and_wrong"]


@pytest.mark.guard
def test_a_reference_that_is_too_inexact_itself_is_overruled(evaluated: tuple[Path, dict[str, str]]) -> None:
    folder, errors = evaluated
    assert "faint" not in errors
    evaluation = read(folder, "faint")
    assert evaluation.latencies[0].relative_error > 1e-2
    assert evaluation.exact_error is not None and evaluation.exact_error < 1e-5
    assert "faint: the outputs differ from those of onnxruntime by " in (folder / "log.txt").read_text()
    assert read(folder, "torch").exact_error is None
    # A reference as bad as this one does not show what single precision can do.
    assert evaluation.reference_exact_error is not None and evaluation.reference_exact_error > 3e-3


@pytest.mark.guard
def test_a_build_may_be_as_inexact_as_its_references_are(evaluated: tuple[Path, dict[str, str]]) -> None:
    folder, errors = evaluated
    evaluation = read(folder, "delicate")
    assert evaluation.exact_error is not None and evaluation.reference_exact_error is not None
    assert 1e-4 < evaluation.exact_error < 3 * evaluation.reference_exact_error < 9e-3
    assert "delicate" not in errors


@pytest.mark.guard
def test_a_build_that_is_less_exact_than_its_references_is_refused(evaluated: tuple[Path, dict[str, str]]) -> None:
    folder, errors = evaluated
    assert "the outputs differ from those of torch" in errors["delicate_and_wrong"]
    evaluation = read(folder, "delicate_and_wrong")
    assert evaluation.exact_error is not None and evaluation.exact_error > 1e-2


@pytest.mark.parametrize(
    ("averaged", "message"),
    [
        ({"averaged_error": 1e-3}, None),
        ({"averaged_error": 4e-3}, "the means over 400 nearby inputs differ by 0.004, of which 0.003 may be chance"),
        ({"nearby_error": 0.05}, "those of the reference differ by 0.01 if its inputs are rounded anew"),
        ({"averaged_draws": 32}, "correctness is not shown beyond 0.011"),
        ({"reference_sensitivity": None}, "at most 0.0001 is allowed"),
    ],
    ids=["right", "noise", "unexplained", "too few draws", "not compared"],
)
def test_a_sensitive_reference_allows_what_may_be_chance(averaged: dict[str, float], message: str | None) -> None:
    latency = Latency("onnxruntime", 1.0, 1.0, 1.0, relative_error=0.02)
    found = Evaluation("net", "2026-01-01T00:00:00Z", 1, {}, {}, 0.0, (latency,))
    compared = {"reference_sensitivity": 0.01, "nearby_error": 0.02, "averaged_error": 1e-3, "averaged_draws": 400}
    evaluation = replace(found, **{**compared, **averaged})
    if message is None:
        _refuse_errors(Path("net"), evaluation, 1e-4)
        return
    with pytest.raises(BuildError, match=re.escape(message)):
        _refuse_errors(Path("net"), evaluation, 1e-4)


@pytest.mark.guard
@pytest.mark.parametrize(("algorithm", "is_told"), [("winograd", True), ("direct", False)])
def test_a_refusal_tells_of_the_method_that_rounds_more(tiny_project: Path, algorithm: str, is_told: bool) -> None:
    build = read_build(tiny_project / "net")
    tasks = tuple(replace(task, config={**(task.config or {}), "algorithm": algorithm}) for task in build.tasks)
    assert ("with `exact: true`" in _remedy(replace(build, tasks=tasks))) is is_told


@pytest.mark.guard
def test_noise_of_one_percent_is_refused_beside_an_inexact_reference(evaluated: tuple[Path, dict[str, str]]) -> None:
    folder, errors = evaluated
    assert "the outputs differ from those of onnxruntime" in errors["faint_and_wrong"]
    exact = read(folder, "faint_and_wrong").exact_error
    assert exact is not None and exact > 1e-3 and f"{exact:.2g} from those in double" in errors["faint_and_wrong"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there is no such file"),
        ("{", "is not JSON: "),
        ("{}", "name is missing"),
        ('{"schema": 2}', "found schema 2; this version of Anole reads 1"),
    ],
)
def test_a_folder_that_is_no_build(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "build.json").write_text(text)
    with pytest.raises(DocumentError, match=words) as caught:
        evaluate_build(tmp_path, tmp_path / "evaluation.json")
    assert str(caught.value).endswith("; `snakemake --forcerun compile` writes it again")


def test_a_simulator_has_no_latency_under_load(tmp_path: Path) -> None:
    folder = Path(__file__).parents[1] / "old_records/builds/residual-accelerator-dcoc"
    with pytest.raises(BuildError, match="is for a simulator, which has no latency under load; leave out the neigh"):
        evaluate_build(folder, tmp_path / "evaluation.json", neighbours=(0, 1))
    assert not (tmp_path / "evaluation.json").exists()


def test_relative_errors() -> None:
    one, two = np.ones(4, np.float32), np.full(4, 2, np.float32)
    assert relative_error([one, two], [one, two]) == 0
    assert relative_error([one, one], [one, two]) == pytest.approx(0.5)
    assert relative_error([one * np.nan], [one]) > 1e299
    assert relative_error([one], [one, two]) > 1e299
    assert relative_error([one[:2]], [one]) > 1e299


def test_the_speedup_is_that_of_the_rounds_whatever_the_machine_does_between_them() -> None:
    fast, slow = np.full(3, 1e-3), np.full(3, 2e-3)
    times = {"build": [fast, fast, slow, slow, slow], "torch": [2 * fast, 2 * fast, 2 * slow, 2 * slow, fast]}
    assert _latency("torch", Comparison(0.0, (1.0,), 0.0), times).speedup == pytest.approx(2.0)


@pytest.mark.guard
def test_a_build_of_other_weights_is_refused(tiny_project: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_project, tmp_path, dirs_exist_ok=True)
    build = read_build(tmp_path / "net")
    entry = {**build.entry, "source": "torch:tiny:residual_of_other_weights"}
    write_build(tmp_path / "net", replace(build, entry=entry))
    script = """
from pathlib import Path
from anole.errors import AnoleError
from anole.evaluate.interleave import Pace
from anole.evaluate.stage import evaluate_build
try:
    evaluate_build(Path("net"), Path("evaluation.json"), pace=Pace(rounds=1, burst_s=0.0, pause_s=0.0))
except AnoleError as error:
    print(error)
"""
    said = run_python(tmp_path, "-c", script).stdout
    assert said.startswith("net: the outputs differ from those of torch: relative error "), said
    assert all(latency.relative_error > 1e-2 for latency in read(tmp_path, "evaluation").latencies)


@pytest.mark.guard
def test_engines_take_as_many_turns_as_asked(tiny_project: Path, tmp_path: Path) -> None:
    path = tmp_path / "evaluation.json"
    run_python(tiny_project, "-m", "anole", "evaluate", "net", "--rounds", "2", "--output", str(path))
    assert [latency.rounds for latency in read_evaluation(path).latencies] == [2, 2]
