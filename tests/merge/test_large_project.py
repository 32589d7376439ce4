"""The project that benchmarks/store/scale.py measures, made small: views say of it what slow ones say."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from anole.merge.database import merge_files
from anole.store.shard import read_shard
from benchmarks.store.project import make_project

SLOW = Path(__file__).with_name("slow_views.sql").read_text()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    make_project(folder, n_tasks=60, n_trials=1500)
    return folder


def rounded(connection: sqlite3.Connection, view: str) -> list[list[object]]:
    """Returns the rows of a view, whatever their order, and the order in which numbers were added."""
    rows = connection.execute(f"select * from {view}").fetchall()
    return sorted(([f"{cell:.10g}" if isinstance(cell, float) else cell for cell in row] for row in rows), key=repr)


def test_its_records_are_merged_and_views_say_what_slow_ones_say(project: Path) -> None:
    builds = sorted((project / "builds").iterdir())
    manifests = sorted(project.glob("work/models/*/*.json"))
    evaluations = sorted(project.glob("work/evaluations/*.json"))
    database = project / "db/tuning.sqlite"
    merged = merge_files(project / "db/shards", manifests, builds, evaluations, database)
    assert (merged.runs, merged.unsealed_runs, merged.replaced, merged.ignored) == (84, 0, (), ())
    assert 1400 < merged.trials < 1600 and len(builds) == len(evaluations) == len(manifests) == 2
    connection = sqlite3.connect(database)
    connection.executescript(SLOW)
    for view in ("best_of_run", "best_trial", "tuning_curve", "tuner_summary", "failures"):
        found, expected = (rounded(connection, prefix + view) for prefix in ("", "slow_"))
        assert found == expected and len(found) > 20, view
    connection.close()


def test_its_shards_hold_every_kind_of_record(project: Path) -> None:
    contents = [read_shard(path) for path in project.glob("db/shards/*/*.jsonl")]
    statuses = {trial.measurement.status.value for content in contents for trial in content.trials}
    assert statuses == {"ok", "run_error", "build_error", "build_timeout", "wrong_answer"}
    assert all(content.confirmations and content.iterations and content.space for content in contents)


def test_the_stage_does_not_wait_for_pandas_or_numpy() -> None:
    code = "import sys, anole.merge.stage; print(sorted({'numpy', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
