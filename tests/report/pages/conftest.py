"""Reports of three real projects: recorded trials of several presets, an old project, and a built accelerator."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from anole.__main__ import main
from anole.documents import layout
from anole.merge.stage import merge_builds
from anole.record import Measurement, Status, Trial
from anole.report.pages.database import Database
from anole.report.pages.figure import Figure, MissingData, ReportSource, Shown
from anole.report.pages.report import all_sections, figures_of
from anole.store.shard import Shard
from anole.task import Conv2d, Task
from anole_vta.settings import describe_vta

from ...record_project import Project, run_of

OLD = Path(__file__).parents[2] / "old_records"
HOSTILE = "<img src=x onerror=alert(1)>"
HOSTILE_PRESET = "</script><b>'\"&amp;"
SLOWNESS = {"anole": 1.0, "release": 1.15, "chameleon": 1.3}
"""The relative latency of each preset's configs in `recorded`."""

SEARCHED = describe_vta(hardware="search")
LAYERS = tuple(Task(Conv2d(1, size, size, 64, 64, (3, 3), padding=(1, 1, 1, 1)), SEARCHED, 1) for size in (56, 28))
"""The layers of the networks for a searched accelerator in `recorded`."""

FRONT = """\
network,accelerator,block,area,latency_ms,relative_energy,knee,checked
net,1x16x16_i8w8a32_15_15_18_17,1x16x16,1.0000,70.1,1,,RTL
net,1x16x64_i8w8a32_15_15_18_17,1x16x64,1.4,29.4,1.1,time x area,RTL
all networks,1x16x64_i8w8a32_15_15_18_17,1x16x64,1.4,99.4,1.2,time x area x energy,RTL
"""
"""The front of an explored accelerator in `recorded`, with the columns that the report uses."""


def _record(folder: Path) -> None:
    """Fill a project with three presets and seeds on four tasks, and two networks on searched accelerators."""
    project, rng = Project(folder), random.Random(0)
    project.fill()
    for preset, slowness in SLOWNESS.items():
        for seed in (10, 11, 12):
            for number, task in enumerate((project.CONV, project.WIDE, project.DENSE, project.OTHER), 1):
                latencies_s = [slowness * number * 1e-3 * (1 + rng.random() / (trial + 1)) for trial in range(20)]
                project.tune(run_of(task, preset, seed), task, [None, *latencies_s])
    project.tune(run_of(project.OTHER, HOSTILE_PRESET, 99), project.OTHER, [9e-3] * 4)
    for number, task in enumerate(LAYERS, 1):
        with Shard.open(project.shards, run_of(task, "dcoc"), task) as shard:
            for trial in _accelerated(number, task):
                shard.append_trial(trial)
            shard.append_iteration(1, {"rank_correlation": 0.4 * number})
    project.extract("small", [(LAYERS[1], 2)], target="npu")
    project.extract("large", [(LAYERS[0], 1), (LAYERS[1], 3)], target="npu")
    project.extract(HOSTILE, [(project.CONV, 1)])
    project.compile(HOSTILE, [(project.CONV, 1, None)])
    project.evaluate(f"{HOSTILE}-cpu")
    project.merge()
    front = folder / "accelerators/edge/front.csv"
    front.parent.mkdir(parents=True)
    front.write_text(FRONT)


def _accelerated(cost: int, task: Task) -> Iterator[Trial]:
    """Yield trials of a layer with blocks of 16 and 32 in buffers of two sizes: larger ones take fewer cycles."""
    own = {"log_inp_buff_size": 15, "log_wgt_buff_size": 18, "h_threading": 1, "oc_threading": 1}
    for number, (block, acc) in enumerate(((16, 16), (16, 17), (32, 16), (32, 17))):
        config = {"tile_b": 1, "tile_ci": block, "tile_co": block, "log_acc_buff_size": acc, **own}
        latency_s = cost * 1e-3 * (16 / block) * (1.2 if acc == 16 else 1.0)
        gflops = task.workload.flop / latency_s / 1e9
        measurement = Measurement(Status.OK, None, latency_s, 0.0, 0.0, 1, 0.0, 0.1)
        yield Trial(number, 0, config, measurement, 0.1 * (number + 1), gflops, "2026-11-21T10:00:00.000Z")


@pytest.fixture(scope="session")
def recorded(once: Callable[..., Path]) -> Path:
    """A merged project with records of every kind; the name of one model contains a script."""
    return once("recorded", _record)


@pytest.fixture(scope="session")
def old_project(once: Callable[..., Path]) -> Path:
    """The project of an old version, with a searched accelerator, merged by the current version."""

    def fill(folder: Path) -> None:
        shutil.copytree(OLD, folder, dirs_exist_ok=True)
        builds = [path for path in sorted((folder / "builds").iterdir())]
        with chdir(folder):
            merge_builds(builds, folder / layout.SHARDS, folder / layout.DATABASE)

    return once("old_project", fill)


@pytest.fixture(scope="session")
def npu_project(once: Callable[..., Path], accelerated: Path) -> Path:
    """A project whose only build is a residual network for VTA++, with its instruction streams."""

    def fill(folder: Path) -> None:
        for name in ("net", "work"):
            shutil.copytree(accelerated / name, folder / ("builds/net-npu" if name == "net" else name))
        merged = Project(folder).merge()
        assert merged.runs == 0

    return once("npu_project", fill)


@contextmanager
def open_source(project: Path, spec: Path | None = None) -> Iterator[ReportSource]:
    """Open a project's database as a report source."""
    with Database(project / layout.DATABASE) as database:
        yield ReportSource(database, project, spec)


def section(source: ReportSource, key: str) -> list[Shown]:
    (found,) = (each for each in all_sections() if each.key == key)
    return list(figures_of(found, source))


def figure(source: ReportSource, key: str, title: str = "") -> Figure:
    (found,) = (each for each in section(source, key) if each.title.startswith(title))
    assert isinstance(found, Figure), found
    return found


def advice(source: ReportSource, key: str, title: str = "") -> str:
    (found,) = (each for each in section(source, key) if each.title.startswith(title))
    assert isinstance(found, MissingData)
    return found.remedy


def write_report(project: Path, output: Path, *arguments: str) -> str:
    """Write the report of a project with the command, and return the page."""
    with chdir(project):
        result = CliRunner().invoke(main, ["report", "--output", str(output.absolute()), *arguments])
    assert result.exit_code == 0, result.output
    return output.read_text(encoding="utf-8")
