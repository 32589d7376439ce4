"""A small version of the synthetic project that benchmarks/store/scale.py measures."""

from __future__ import annotations

from pathlib import Path

from anole.merge.database import merge_files
from anole.store.shard import read_shard
from kit.large_project import make_project


def test_the_synthetic_shards_have_every_kind_of_record_and_can_be_merged(tmp_path: Path) -> None:
    make_project(tmp_path, n_tasks=60, n_trials=1500)
    contents = [read_shard(path) for path in tmp_path.glob("db/shards/*/*.jsonl")]
    statuses = {trial.measurement.status.value for content in contents for trial in content.trials}
    assert statuses == {"ok", "run_error", "build_error", "build_timeout", "wrong_answer"}
    assert all(content.confirmations and content.iterations and content.space for content in contents)
    builds, manifests = sorted((tmp_path / "builds").iterdir()), sorted(tmp_path.glob("work/models/*/*.json"))
    evaluations = sorted(tmp_path.glob("work/evaluations/*.json"))
    merged = merge_files(tmp_path / "db/shards", manifests, builds, evaluations, tmp_path / "db/tuning.sqlite")
    assert (merged.runs, merged.unsealed_runs, merged.replaced, merged.ignored) == (84, 0, (), ())
    assert 1400 < merged.trials < 1600 and len(builds) == len(evaluations) == len(manifests) == 2
