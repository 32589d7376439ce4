"""Shared code of the tuning tests: a task in a folder, with the files that tuning writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anole.documents.manifest import write_task
from anole.search.presets import read_tuner
from anole.search.settings import TunerSettings
from anole.store.content import ShardContent
from anole.store.shard import read_shard
from anole.targets.cpu.settings import describe_cpu
from anole.targets.rpc.address import Remote
from anole.task import Dense, Task, Workload
from anole.tune.job import TuneOptions
from anole.tune.stage import tune_task

TUNER = {"preset": "random", "evaluator": {"number": 1, "repeats": 2}, "n_confirm": 1}
RANDOM = read_tuner(TUNER)
TINY = Dense(1, 32, 64)


class Project:
    """A task in a folder, with its receipts and shards."""

    def __init__(
        self, folder: Path, workload: Workload = TINY, target: Mapping[str, Any] | None = None, seed: int = 7
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.seed = seed
        self.task = Task(workload, target or describe_cpu(threads=1), 1)
        self.folder, self.path, self.shards = folder, folder / f"{self.task.key}.json", folder / "shards"
        write_task(self.path, self.task)

    def tune(
        self,
        trials: int,
        settings: TunerSettings = RANDOM,
        *,
        shards: Path | None = None,
        remote: Remote | None = None,
        failures_again: bool = False,
    ) -> dict[str, Any]:
        receipt = self.folder / f"{trials}.json"
        options = TuneOptions(settings, self.seed, trials, shards or self.shards, remote, n_builders=remote and 2)
        tune_task(self.path, options, receipt, failures_again=failures_again)
        return dict(json.loads(receipt.read_text()))

    @property
    def shard(self) -> Path:
        (path,) = self.shards.glob(f"{self.task.key}/*.jsonl")
        return path

    @property
    def content(self) -> ShardContent:
        return read_shard(self.shard)
