"""Builds compute the same outputs as their networks in torch, ONNX Runtime and NumPy, however they are run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.acceptance.conftest import User, difference
from tests.acceptance.networks import CASES, Case, Subtract, expected_outputs, of, random_inputs

pytestmark = pytest.mark.workflow

FEW, OTHERS = list(CASES)[:3], list(CASES)[3:]


def build_cases(folder: Path, names: list[str]) -> User:
    """Compile cases with the workflow."""
    user = User(folder)
    user.ask_oracle(names)
    user.write(names)
    user.snakemake(*(f"builds/{name}-cpu-random" for name in names))
    return user


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> User:
    return build_cases(tmp_path_factory.mktemp("few"), FEW)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Return the errors of builds made by commands in one process, in a third of the workflow's time."""
    user = User(tmp_path_factory.mktemp("others"))
    user.ask_oracle(OTHERS)
    user.write(OTHERS)
    made = user.in_turn(
        *(["extract", name, "--target", "cpu"] for name in OTHERS),
        *(["compile", f"{name}-cpu-random"] for name in OTHERS),
        *(["evaluate", f"builds/{name}-cpu-random", "--rounds", "1"] for name in ("passing", "hidden")),
    )
    assert made.returncode == 0, made.stderr
    return differences(user, OTHERS)


def differences(user: User, names: list[str]) -> dict[str, float]:
    """Return the error of each build."""
    found = user.run_each_by_load_py({f"{name}-cpu-random": user.inputs(name) for name in names})
    return {name: difference(found[f"{name}-cpu-random"], user.outputs(name)) for name in names}


def test_builds_compute_their_networks(few: User) -> None:
    assert all(error < 1e-5 for error in differences(few, FEW).values())


@pytest.mark.guard
@pytest.mark.parametrize("case", OTHERS)
def test_other_builds_compute_their_networks(others: dict[str, float], case: str) -> None:
    assert others[case] < 1e-5


@pytest.mark.slow
def test_the_workflow_makes_all_other_builds(tmp_path: Path) -> None:
    assert all(error < 1e-5 for error in differences(build_cases(tmp_path, OTHERS), OTHERS).values())


@pytest.mark.guard
def test_the_workflow_evaluates_these_builds_as_correct(few: User) -> None:
    assert "failed" not in few.snakemake()


@pytest.mark.guard
@pytest.mark.parametrize("case", FEW)
def test_commands_and_c_libraries_compute_the_network(few: User, case: str) -> None:
    build, expected = f"{case}-cpu-random", few.outputs(case)
    assert difference(few.run_by_command(build, few.inputs(case)), expected) < 1e-5
    assert difference(few.run_by_order(build, case), expected) < 1e-5
    exported = few.anole("export", f"builds/{build}", "--to", f"library_{case}")
    assert exported.returncode == 0, exported.stderr
    folder = few.folder / f"library_{case}"
    found = subprocess.run(
        [sys.executable, "-c", IN_C, str(folder), str(few.inputs(case)), *expected], capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    assert difference(dict(np.load(folder / "found.npz")), expected) < 1e-5


IN_C = """
import pathlib, sys
import numpy as np
folder, given, *names = sys.argv[1:]
sys.path.insert(0, folder)
import network
inputs = np.load(given)
with network.Network() as opened:
    found = opened(*(inputs[name] for name in inputs))
np.savez(pathlib.Path(folder, "found.npz"), **dict(zip(names, found, strict=True)))
"""


@pytest.mark.guard
def test_other_precisions_and_targets_compute_the_network(tmp_path: Path) -> None:
    user = User(tmp_path)
    user.ask_oracle(["images"])
    allowed = {"one": 1e-5, "two": 1e-5, "bytes": 0.1, "vta": 0.2}
    targets: dict[str, Any] = {"one": {}, "two": {"threads": 2}, "bytes": {"precision": "int8"}, "vta": {"kind": "vta"}}
    if {"avx512_bf16", "avx512vl"} <= set(Path("/proc/cpuinfo").read_text().split()):
        targets["half"], allowed["half"] = {"precision": "bf16"}, 2e-2
    user.write(["images"], targets)
    user.snakemake()
    turned = {"output": -user.outputs("images")["output"]}
    for target, max_error in allowed.items():
        found = user.run_by_command(f"images-{target}-random", user.inputs("images"))
        assert difference(found, user.outputs("images")) < max_error < difference(found, turned), target
        ordered = user.run_by_order(f"images-{target}-random", "images")
        assert all(np.array_equal(ordered[name], found[name]) for name in found), target


@pytest.mark.guard
def test_a_build_for_ranges_computes_the_network_at_every_size(tmp_path: Path) -> None:
    user = User(tmp_path)
    ranged = Case(Subtract, {name: [{"batch": "1..6"}, 8] for name in ("a", "x")})
    user.write([], ranged=ranged)
    user.snakemake()
    for size in (1, 2, 5, 6):
        case = replace(ranged, inputs=of("a", "x", shape=(size, 8)))
        inputs = random_inputs(case, size)
        np.savez(tmp_path / "given.npz", allow_pickle=False, **inputs)
        found = user.run_by_load_py("ranged-cpu-random", tmp_path / "given.npz")
        assert difference(found, expected_outputs(case, inputs)) < 1e-5


def test_partly_matching_parameter_names_are_rejected(tmp_path: Path) -> None:
    user = User(tmp_path)
    user.write([], mixed=Case(Subtract, of("x", "b")))
    ran = user.anole("extract", "mixed", "--target", "cpu")
    assert ran.returncode != 0
    assert "inputs: found b, which forward(x, a) does not have, although it has x" in ran.stderr
    assert not (tmp_path / "work/models").exists()


@pytest.mark.guard
def test_changed_files_and_input_orders_are_built_again(tmp_path: Path) -> None:
    """Change a module, replace files by older ones, and reorder the inputs in models.yaml."""
    user = User(tmp_path)
    names = ["turned", "file"]
    user.ask_oracle(names)
    user.write(names)
    user.snakemake()
    assert "Nothing to do" in user.anole("plan").stdout
    before = {name: user.run_by_load_py(f"{name}-cpu-random", user.inputs(name)) for name in names}

    older = json.loads(json.dumps(os.stat(tmp_path / "networks.py").st_mtime)) - 2 * 86400
    (tmp_path / "networks.py").write_text(
        (tmp_path / "networks.py").read_text().replace("default_rng(3)", "default_rng(4)")
    )
    (tmp_path / "networks.py").write_text(
        (tmp_path / "networks.py").read_text().replace("seed: int = 0)", "seed: int = 5)")
    )
    user.ask_oracle(names)
    for name in ("networks.py", "graph.onnx"):
        os.utime(tmp_path / name, (older, older))
    assert "turned for cpu, file for cpu        the model's files have changed" in user.anole("plan").stdout
    user.snakemake()
    for name in names:
        found = user.run_by_load_py(f"{name}-cpu-random", user.inputs(name))
        assert difference(found, user.outputs(name)) < 1e-5 < difference(found, before[name])
    assert "Nothing to do" in user.anole("plan").stdout

    user.write([], turned=replace(CASES["turned"], inputs=of("x", "a")), file=CASES["file"])
    user.snakemake()
    described = json.loads((tmp_path / "builds/turned-cpu-random/build.json").read_text())
    assert [each["name"] for each in described["inputs"]] == ["x", "a"]
    assert difference(user.run_by_load_py("turned-cpu-random", user.inputs("turned")), user.outputs("turned")) < 1e-5
    shutil.rmtree(tmp_path / "builds")
