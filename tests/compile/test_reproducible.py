"""Two compilations of the same records give the same bytes, whatever their folder, process and history."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anole.documents.build import read_build

pytestmark = pytest.mark.guard

HOME = Path(__file__).parents[2]

SCRIPT = """
import sys
from pathlib import Path
from anole.compile.build import BuildSettings, compile_build
from anole.extract.tasks import extract_tasks
from anole.declared.entries import ModelSpec
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.targets.vta.settings import describe_vta

targets = {"cpu": {**describe_cpu(), "threads": 2}, "vta": describe_vta()}
shapes = {"residual": (1, 3, 16, 16), "varied": (1, 6, 11, 12)}
for name in sys.argv[1:]:
    network, kind = name.split("-")
    target, model = get_target(targets[kind]), ModelSpec("net", f"torch:tiny:{network}", {"x": shapes[network]})
    manifest, _ = extract_tasks(model, kind, target.description, target.template_version, target.takes)
    compile_build(model, manifest, BuildSettings(name, "autotvm", 0, False, 0), {}, Path(name))
"""

BUILDS = ("varied-cpu", "residual-vta")
TIMES = {"created_at", "crc"}
"""What differs between two descriptions: the time of compiling, and so the checksum of all."""


def start(folder: Path, seed: int, builds: tuple[str, ...]) -> subprocess.Popen[str]:
    """Compiles builds in a folder, in a process with a folder of temporary files and a hash seed of its own."""
    temporary = folder / ("temporary" * seed)
    temporary.mkdir(parents=True)
    shutil.copy(HOME / "tests/tiny_networks.py", folder / "tiny.py")
    path = os.pathsep.join([str(HOME / "lib"), str(folder)])
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(temporary), "PYTHONHASHSEED": str(seed)}
    command = [sys.executable, "-c", SCRIPT, *builds]
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two folders with the same builds, compiled in opposite orders."""
    one, other = (tmp_path_factory.mktemp(name) for name in ("one", "another-of-a-longer-name"))
    # One after the other, so that no test beside them waits for more than one core.
    for folder, seed, builds in ((one, 1, BUILDS), (other, 2, BUILDS[::-1])):
        said = (process := start(folder, seed, builds)).communicate()[1]
        assert process.returncode == 0, said
    return one, other


def files_of(folder: Path) -> dict[str, Any]:
    """Returns the content of each file of a build; of its description without times."""
    found: dict[str, Any] = {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    described = json.loads(found["build.json"])
    assert described.keys() >= TIMES
    return {**found, "build.json": {name: value for name, value in described.items() if name not in TIMES}}


@pytest.mark.parametrize("name", BUILDS)
def test_two_compilations_give_the_same_bytes(twice: tuple[Path, Path], name: str) -> None:
    one, other = (files_of(folder / name) for folder in twice)
    assert len(one) > 2 and one.keys() == other.keys()
    assert [path for path in one if one[path] != other[path]] == []


@pytest.mark.parametrize("name", BUILDS)
def test_the_description_has_the_sha256_of_each_file_that_is_loaded(twice: tuple[Path, Path], name: str) -> None:
    folder = twice[0] / name
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    said = read_build(folder).sha256
    assert said is not None and said.keys() == written - {"build.json", "load.py", "load.cc"}
    assert said == {path: hashlib.sha256((folder / path).read_bytes()).hexdigest() for path in said}
