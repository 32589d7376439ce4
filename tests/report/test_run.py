"""Running a build on given inputs: reading, writing and rejecting files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from anole.documents.build import read_build
from anole.errors import BuildError, DocumentError
from anole.evaluate.comparison import timing_inputs
from anole.files import write_atomically
from anole.report.run import run_build
from anole_vta.network.artifact import BuiltNetwork
from anole_vta.network.network import IntegerReference

from ..terminal import anole


@pytest.fixture
def net(accelerated: Path) -> Path:
    return accelerated / "net"


@pytest.fixture
def array(net: Path) -> np.ndarray:
    (info,) = read_build(net).inputs
    return np.random.default_rng(3).standard_normal(info.shape).astype(info.dtype)


def test_outputs_equal_the_integer_reference(net: Path, array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array)
    found = run_build(net, [tmp_path / "x.npy"], tmp_path / "y.npy")
    built = BuiltNetwork.load(net)
    (expected,) = built.outputs(built.run([array], IntegerReference()))
    (output,) = found.values()
    np.testing.assert_array_equal(output, expected)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


def test_inputs_and_outputs_may_have_names(net: Path, array: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=array)
    outcome = anole("run", net, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    assert outcome.exit_code == 0, outcome.output
    with np.load(tmp_path / "y.npz") as outputs:
        (name,) = outputs
        assert f"{name}: float32 {list(outputs[name].shape)}" in outcome.output


def test_without_inputs_they_are_described_and_nothing_runs(net: Path) -> None:
    outcome = anole("run", net)
    (info,), (output,) = read_build(net).inputs, read_build(net).outputs
    lines = [f"  {each.name}  {each.dtype} {list(each.shape)}" for each in (info, output)]
    assert outcome.output.splitlines() == ["inputs:", lines[0], "outputs:", lines[1]]
    script = f"import sys, anole.__main__ as a; a.main(['run', {str(net)!r}], standalone_mode=False); "
    check = "print({'tvm', 'torch'} & set(sys.modules))"
    command = [sys.executable, "-c", script + check]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.endswith("\nset()\n")


def test_default_random_inputs_equal_those_of_the_evaluation(net: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", timing_inputs(read_build(net))[0])
    given = anole("run", net, "--input", tmp_path / "x.npy").output
    assert given == anole("run", net, "--random").output == anole("run", net, "--random", "--seed", 0).output
    assert given != anole("run", net, "--random", "--seed", 1).output


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--random", "--input", "x.npy"], "give --input or --random, not both"),
        (["--seed", 1], "--seed requires --random"),
        (["--output", "y.npz"], "--output requires --input or --random"),
    ],
)
def test_contradictory_options_are_rejected(net: Path, options: list[object], problem: str) -> None:
    outcome = anole("run", net, *options)
    assert outcome.exit_code == 2 and problem in outcome.output


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"x": np.zeros((1, 2), np.float32)}, r"input x: found shape \[1, 2\]; expected float32 of shape"),
        ({"y": np.zeros((1, 2), np.float32)}, "input x: found none"),
    ],
)
def test_mismatched_inputs_are_rejected(net: Path, tmp_path: Path, made: dict, message: str) -> None:
    np.savez(tmp_path / "x.npz", **made)
    with pytest.raises(BuildError, match=message):
        run_build(net, [tmp_path / "x.npz"])


def test_bad_arrays_builds_and_outputs_are_rejected(net: Path, array: np.ndarray, tmp_path: Path) -> None:
    for name, text in (("x.npy", "nothing"), ("x.npy", ""), ("x.npz", "PK\3\4nothing")):
        (tmp_path / name).write_text(text)
        with pytest.raises(BuildError, match=f"{name}: cannot be read as .npy or .npz: "):
            run_build(net, [tmp_path / name])
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(BuildError, match=r"x\.npy: is one file too many; the build has 1 input$"):
        run_build(net, [tmp_path / "x.npy", tmp_path / "x.npy"])
    with pytest.raises(DocumentError, match=r"build\.json: there is no such file; .* compile` writes it again"):
        run_build(tmp_path, [tmp_path / "x.npy"])
    with pytest.raises(BuildError, match=r"y\.txt: the file for 1 outputs must be"):
        run_build(net, [tmp_path / "x.npy"], tmp_path / "y.txt")


def test_a_layer_of_a_build_is_reported_and_plotted(net: Path, tmp_path: Path) -> None:
    outcome = anole("vta", "report", "--build", net, "--step", "head", "--picture", tmp_path / "head.svg")
    assert outcome.exit_code == 0 and "GEMM core" in outcome.output
    assert (tmp_path / "head.svg").read_text().startswith("<svg")
    outcome = anole("vta", "report", "--build", net, "--step", "tail")
    assert "found step 'tail'; the accelerator's steps are" in str(outcome.output)
    assert anole("vta", "report", "--build", net).exit_code == 2


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda path: write_atomically(path, "other"),  # this process has mapped the library
            "is not the file that build.json describes: its SHA-256 is d9298a10d1b0...",
        ),
        (lambda path: path.unlink(), "cannot be read: No such file or directory"),
    ],
)
def test_a_library_that_does_not_match_the_description_is_rejected(
    net: Path, array: np.ndarray, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    copy = tmp_path / "net"
    shutil.copytree(net, copy)
    (copy / "build.txt").write_text("a note of the user's")
    np.save(tmp_path / "x.npy", array)
    assert anole("run", copy, "--input", tmp_path / "x.npy").exit_code == 0
    damage(copy / "host.so")
    outcome = anole("run", copy, "--input", tmp_path / "x.npy")
    assert outcome.exit_code == 2 and f"anole: {copy}/host.so: {message}" in outcome.output
    assert outcome.output.endswith("; `snakemake --forcerun compile` writes it again\n")
