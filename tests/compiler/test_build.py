"""A build is a self-contained folder that describes itself, and is written completely or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tvm_ffi

from anole.compiler.build import BuildSettings, compile_build
from anole.config.entries import ModelSpec
from anole.documents.build import Build, TensorInfo, read_build
from anole.documents.receipt import Receipt
from anole.extract.stage import extract_tasks
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu

SETTINGS = BuildSettings("net-cpu", "autotvm", 64, False, 7)


def compile_model(name: str, shape: tuple[int, ...], folder: Path) -> Build:
    model = ModelSpec(name, f"torch:tiny:{name}", {"x": shape})
    target = get_target(describe_cpu())
    manifest, tasks = extract_tasks(model, "cpu", target)
    config = target.default_config(tasks[0].workload)
    tuned = Receipt(tasks[0].key, "c" * 64, 64, config, 1e-4)
    return compile_build(model, manifest, SETTINGS, {tasks[0].key: tuned}, folder)


def test_a_build_describes_itself_and_runs_without_anole(project: Path) -> None:
    folder = project / "builds" / "net-cpu"
    folder.mkdir(parents=True)
    (folder / "old").write_text("of an earlier build")
    build = compile_model("varied", (1, 6, 11, 12), folder)
    assert sorted(path.name for path in folder.iterdir()) == ["build.json", "load.cc", "load.py", "model.so"]
    assert [path.name for path in folder.parent.iterdir()] == ["net-cpu"]
    assert read_build(folder) == build
    output = json.loads((folder / "build.json").read_text())
    assert {key: output[key] for key in ("schema", "name", "model", "target", "preset", "trials", "seed")} == {
        "schema": 1, "name": "net-cpu", "model": "varied", "target": "cpu", "preset": "autotvm", "trials": 64,
        "seed": 7,
    }  # fmt: skip
    assert build.inputs == (TensorInfo("x", (1, 6, 11, 12), "float32"),)
    assert [info.shape for info in build.outputs] == [(1, 7, 5, 12), (1, 60, 5)]
    assert [task.matched for task in build.tasks] == ["tuned", *["default"] * 5]
    assert 0 < build.coverage.share < 1
    library = (folder / "model.so").read_bytes()
    assert (build.size_bytes, build.sha256) == (len(library), {"model.so": hashlib.sha256(library).hexdigest()})

    moved = project / "elsewhere"
    shutil.move(folder, moved)
    printed = run_with_packages("numpy tvm", f"runpy.run_path('{moved}/load.py', run_name='__main__')")
    assert "output_0 (1, 7, 5, 12)" in printed and "output_1 (1, 60, 5)" in printed
    command = f"sys.argv[1:] = ['run', '{moved}', '--random']; runpy.run_module('anole', run_name='__main__')"
    assert "output_1: float32 [1, 60, 5]" in run_with_packages("numpy tvm click anole", command)


def run_with_packages(packages: str, code: str) -> str:
    """Return the output of code in a process that can import these packages, and what TVM needs, but no others."""
    allowed = {*packages.split(), "tvm_ffi", "ml_dtypes", "typing_extensions", *sys.stdlib_module_names}
    block = f"""if True:
        import runpy, sys
        class Block:
            @staticmethod
            def find_spec(name, *_):
                if name.partition(".")[0] not in {allowed}:
                    raise ModuleNotFoundError(name)
        sys.meta_path.insert(0, Block)
        """
    command = [sys.executable, "-I", "-c", block + code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
@pytest.mark.parametrize(("name", "shape"), [("residual", (1, 3, 16, 16)), ("varied", (1, 6, 11, 12))])
@pytest.mark.guard
def test_the_cpp_loader_compiles_and_runs(project: Path, name: str, shape: tuple[int, ...]) -> None:
    folder = project / "net"
    build = compile_model(name, shape, folder)
    ffi = Path(tvm_ffi.__file__).parent
    libraries = [ffi.parent / "tvm" / "lib", ffi / "lib"]
    command = ["c++", "-std=c++17", "load.cc", f"-I{ffi / 'include'}", *(f"-L{path}" for path in libraries)]
    command += ["-Wl,--no-as-needed", "-ltvm_runtime", "-ltvm_ffi", "-o", "load"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, libraries))}
    output = subprocess.run(["./load"], cwd=folder, check=True, capture_output=True, text=True, env=environment)
    first = build.outputs[0]
    assert output.stdout == f"{first.name} of {len(first.shape)} dimensions\n"
