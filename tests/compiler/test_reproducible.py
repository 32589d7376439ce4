"""Two compilations of the same records give the same bytes in any folder, process and order."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ..tiny_builds import HOME, run_python

pytestmark = pytest.mark.guard

SCRIPT = """
import sys
from pathlib import Path
from anole.config.entries import ModelSpec
from anole.targets.cpu.settings import describe_cpu
from anole_vta.settings import describe_vta
from tests.tiny_builds import compile_untuned

targets = {"cpu": {**describe_cpu(), "threads": 2}, "vta": describe_vta()}
shapes = {"residual": (1, 3, 16, 16), "varied": (1, 6, 11, 12)}
for name in sys.argv[1:]:
    network, kind = name.split("-")
    compile_untuned(ModelSpec("net", f"torch:tiny:{network}", {"x": shapes[network]}), Path(name), targets[kind])
"""

BUILDS = ("varied-cpu", "residual-vta")
TIMES = {"created_at", "crc"}
"""Fields that differ between two descriptions: the time of compiling, and thus the checksum."""


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two folders with the same builds, compiled in opposite orders, each with its hash seed and temporary folder."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "another-of-a-longer-name")]
    for folder, builds in zip(folders, (BUILDS, BUILDS[::-1]), strict=True):
        shutil.copy(HOME / "tests/tiny_networks.py", folder / "tiny.py")
        (folder / f"temporary-{builds[0]}").mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", str(folder / f"temporary-{builds[0]}"))
            patch.setenv("PYTHONHASHSEED", str(len(folder.name)))
            run_python(folder, "-c", SCRIPT, *builds)
    return folders


def files_of(folder: Path) -> dict[str, Any]:
    """Return the content of each file of a build, without the times in its description."""
    found: dict[str, Any] = {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    described = json.loads(found["build.json"])
    assert described.keys() >= TIMES
    return {**found, "build.json": {name: value for name, value in described.items() if name not in TIMES}}


@pytest.mark.parametrize("name", BUILDS)
def test_two_compilations_give_the_same_bytes(twice: list[Path], name: str) -> None:
    one, other = (files_of(folder / name) for folder in twice)
    assert len(one) > 2 and one.keys() == other.keys()
    assert [path for path in one if one[path] != other[path]] == []
