"""An evaluation compares a build with its references and refuses one that computes something else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from anole.documents.evaluation import Evaluation, read_evaluation
from anole.errors import DocumentError
from anole.evaluate.comparison import relative_error
from anole.evaluate.device import _latency
from anole.evaluate.stage import evaluate_build

# TVM takes its number of threads when it starts, hence a process of its own for everything that runs a build.
SCRIPT = """
import json, os, shutil
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
from anole.spec.entries import ModelSpec
from anole.targets import get_target
import tiny

torch.onnx.export(tiny.residual().eval(), (torch.zeros(1, 3, 16, 16),), "net.onnx", verbose=False)
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
for name in ("torch", "onnx", "wrong"):
    try:
        evaluate_build(Path(name), Path(f"{name}.json"), pace=Pace(rounds=5, burst_s=0.01, pause_s=0.0))
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


def test_an_onnx_model_is_compared_with_onnx_runtime(evaluated: tuple[Path, dict[str, str]]) -> None:
    folder, errors = evaluated
    assert "onnx" not in errors
    assert [latency.reference for latency in read(folder, "onnx").latencies] == ["onnxruntime"]


def test_a_wrong_build_is_recorded_and_refused(evaluated: tuple[Path, dict[str, str]]) -> None:
    folder, errors = evaluated
    assert errors["wrong"].startswith("wrong: the outputs differ from those of torch: relative error ")
    assert "at most 0.0001 is allowed" in errors["wrong"]
    assert all(latency.relative_error > 1e-2 for latency in read(folder, "wrong").latencies)


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
    assert _latency("torch", 0.0, times).speedup == pytest.approx(2.0)
