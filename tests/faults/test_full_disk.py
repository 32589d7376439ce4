"""On a full or read-only disk, a stage reports the error in one line, loses nothing, and works again afterwards."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml

from ..workflow.conftest import Project
from .conftest import BUILD, EXTRACT, RECORDED, message_of, tune_command
from .ledger import AllFigures, Ledger, trials_in
from .processes import SHELL
from .small_disk import SmallDisk

pytestmark = pytest.mark.workflow

MORE = RECORDED + 8
LEVELS_BYTES = (0, 1 << 12, 1 << 14, 1 << 18)


def remove(*places: str) -> Callable[[Path], None]:
    """Return a function that removes files of a stage, so it writes them again."""
    return lambda project: [shutil.rmtree(project / place) for place in places] and None


def tune_more(target: str, project: Path) -> None:
    """Record trials that are not in the database yet."""
    done = Project(project).anole(*tune_command(project, target, MORE))
    assert done.returncode == 0, done.stderr


def prepare_refining(project: Path) -> None:
    """Enable refining in models.yaml."""
    path = project / "models.yaml"
    plain = yaml.safe_load(path.read_text())
    plain["builds"][0]["refine"] = 2
    path.write_text(yaml.safe_dump(plain, sort_keys=False))


def compile_untimed(project: Path) -> None:
    done = Project(project).anole("compile", BUILD["cpu"])
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Stage:
    """A stage to run on a full disk, the path that it writes, and the preparation of the project for its target."""

    target: str
    command: Callable[[Path], list[str]]
    written: str
    prepare: Callable[[Path], object] = lambda _: None


STAGES = {
    "extract": Stage(
        "npu", lambda _: EXTRACT["npu"], "work/models/chain/npu.json", remove("work/models", "work/tasks")
    ),
    "tune": Stage("cpu", lambda project: tune_command(project, "cpu", MORE), "db/shards"),
    "tune (simulated)": Stage("npu", lambda project: tune_command(project, "npu", MORE), "db/shards"),
    "refine": Stage("cpu", lambda _: ["refine", BUILD["cpu"]], f"work/refined/{BUILD['cpu']}.json", prepare_refining),
    "compile": Stage("npu", lambda _: ["compile", BUILD["npu"]], f"builds/{BUILD['npu']}/build.json"),
    "compile (cpu)": Stage("cpu", lambda _: ["compile", BUILD["cpu"]], f"builds/{BUILD['cpu']}/build.json"),
    "evaluate": Stage(
        "npu",
        lambda _: ["evaluate", f"builds/{BUILD['npu']}"],
        f"work/evaluations/{BUILD['npu']}.json",
        remove("work/evaluations"),
    ),
    "evaluate (cpu)": Stage(
        "cpu",
        lambda _: ["evaluate", f"builds/{BUILD['cpu']}"],
        f"work/evaluations/{BUILD['cpu']}.json",
        compile_untimed,
    ),
    "merge": Stage("npu", lambda _: ["merge"], "db/tuning.sqlite", partial(tune_more, "npu")),
    "import": Stage("npu", lambda _: ["import", "elsewhere"], "db/shards", lambda project: move_shards(project)),
}
LONG = ("refine", "compile (cpu)", "evaluate (cpu)")
QUICK = {("tune", 0), ("import", 0), ("merge", "db"), ("import", "db")}
CASES: list[tuple[str, int | str]] = [
    *((name, free) for name in STAGES for free in (LEVELS_BYTES if name not in LONG else LEVELS_BYTES[::2])),
    *((name, "db") for name in ("merge", "tune (simulated)", "import")),
    *(("extract", "work"), ("evaluate", "work"), ("compile", "builds")),
]
"""A stage, and the number of free bytes on its disk or the read-only folder of its project."""


def move_shards(project: Path) -> None:
    """Move the shards to another folder, as if they were from another machine."""
    (project / "db/shards").rename(project / "elsewhere")


@pytest.mark.parametrize(
    ("name", "fault"), [pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow]) for case in CASES]
)
def test_a_full_or_read_only_disk_loses_nothing(
    request: pytest.FixtureRequest, disk: SmallDisk, figures: AllFigures, name: str, fault: int | str
) -> None:
    stage = STAGES[name]
    project: Project = request.getfixturevalue({"npu": "built", "cpu": "tuned_cpu"}[stage.target])
    stage.prepare(project.folder)
    shutil.copytree(project.folder, disk.seen, dirs_exist_ok=True)
    database, ledger = disk.seen / "db/tuning.sqlite", Ledger(disk.seen)
    ledger.note()
    before, merged = contents(disk.seen / "builds"), trials_in(database)
    command = [*SHELL, *stage.command(disk.seen)]

    is_full = isinstance(fault, int)
    with disk.impose(fault):
        running = disk.start(*command)
        if running.wait() != 0 or fault == 0 or not is_full:
            assert running.wait() != 0, "the fault went unnoticed"
            expected = ("No space left", "full") if is_full else (os.strerror(errno.EROFS),)
            assert any(each in message_of(running.output) for each in expected)
            assert contents(disk.seen / "builds") == before
            assert trials_in(database) == merged
        lost, doubled, orphans = ledger.lost(), ledger.doubled(), running.orphans()
        figures[name, "full disk" if is_full else "read-only folder"].add(
            lost=lost, doubled=doubled, orphans=len(orphans)
        )
        assert (lost, doubled, orphans) == (0, 0, [])
        ledger.note()

    again = disk.start(*command)
    assert again.wait() == 0, again.output
    assert (ledger.lost(), ledger.doubled()) == (0, 0)
    assert (disk.seen / stage.written).exists()
    assert ledger.n_trials() == (RECORDED if "tune" not in name and name != "merge" else MORE)
    if name == "merge":
        assert trials_in(database) == MORE


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
