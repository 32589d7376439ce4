"""The stages that go from files to files: a model to its tasks, and a task to its receipt."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from anole.keys import write_atomically
from anole.machine import host_facts
from anole.pipeline import origin
from anole.progress import Progress
from anole.record import Confirmation, Run, Status, Trial
from anole.settings import TunerSettings
from anole.spec import ModelSpec
from anole.store.shard import Shard
from anole.task import Task
from anole.tuner import TUNER_VERSION, tune

logger = logging.getLogger(__name__)

_VERSIONED = ("anole", "apache-tvm", "numpy", "xgboost")


def extract_model(
    model: ModelSpec, target: str, description: Mapping[str, Any], manifest_path: Path, tasks_dir: Path
) -> None:
    """Writes a model's manifest for a target, and every task that is in it.

    Args:
        model: what is extracted.
        target: its name in models.yaml.
        description: of the target.
        manifest_path: what is written last, so that where it is, all its tasks are.
        tasks_dir: where tasks are shared by all models; those that are there already stay untouched.

    Raises:
        ExtractError: the model cannot be loaded or turned into tasks.
    """
    from anole.extract import extract

    manifest, tasks = extract(model, target, description)
    for task in tasks:
        write_atomically(tasks_dir / f"{task.key}.json", _document(task.to_json()))
    write_atomically(manifest_path, _document({**manifest, "made_from": origin(model, description)}))


def tune_task(task: Task, settings: TunerSettings, seed: int, n_trials: int, shards_dir: Path, receipt: Path) -> None:
    """Tunes one task and writes the receipt of it.

    The run's shard is resumed: with a larger budget only the difference is measured, with a smaller one nothing is,
    and the receipt tells of the first trials.

    Args:
        task: what is tuned.
        settings: of the tuner.
        seed: of the tuner.
        n_trials: how many configs are measured, those in the shard included.
        shards_dir: of all shards.
        receipt: the file that says what came of it; a task whose candidates all failed has one too.

    Raises:
        TargetError: the target is not present on this machine.
        MeasureError: measuring is not possible at all.
        StoreError: the shard cannot be used.
    """
    run = Run(
        task.key,
        settings.preset,
        seed,
        TUNER_VERSION,
        settings.to_json(),
        threads=int(task.target.get("threads", 1)),
        host=host_facts(),
        versions={name: metadata.version(name) for name in _VERSIONED},
    )
    with Shard.open(shards_dir, run, task) as shard:
        best = _tune(shard, task, settings, seed, n_trials)
        write_atomically(receipt, _document(_receipt(shard, task, n_trials, best)))


def _tune(
    shard: Shard, task: Task, settings: TunerSettings, seed: int, n_trials: int
) -> Trial | Confirmation | None:
    from anole.measure import Measurer
    from anole.targets import get_target

    recorded = shard.trials[:n_trials]
    statuses = Counter(trial.measurement.status for trial in recorded)
    best_gflops = max((trial.gflops or 0.0 for trial in recorded), default=0.0)
    with ExitStack() as stack:
        progress = stack.enter_context(Progress(task.label, n_trials))
        measurer = cache(lambda: stack.enter_context(Measurer(task, settings.evaluator)))

        def note(trial: Trial) -> None:
            nonlocal best_gflops
            shard.append_trial(trial)
            statuses[trial.measurement.status] += 1
            best_gflops = max(best_gflops, trial.gflops or 0.0)
            progress.update(trial.number + 1, best_gflops, statuses.total() - statuses[Status.OK])

        return tune(
            get_target(task.target).space(task.workload),
            task.workload.flop,
            settings,
            lambda configs: measurer().measure(configs),
            n_trials,
            seed=seed,
            task_key=task.key,
            recorded=recorded,
            confirmed=shard.confirmations,
            confirm=None if len(shard.trials) > n_trials else lambda configs: measurer().confirm(configs),
            on_trial=note,
            on_confirmation=shard.append_confirmation,
        )


def _receipt(shard: Shard, task: Task, n_trials: int, best: Trial | Confirmation | None) -> dict[str, Any]:
    trials = shard.trials[:n_trials]
    latency_s = best.measurement.latency_s if best is not None else None
    return {
        "schema": 1,
        "task_key": task.key,
        "label": task.label,
        "run_key": shard.run.key,
        "preset": shard.run.preset,
        "seed": shard.run.seed,
        "trials": n_trials,
        "measured": len(trials),
        "status": "failed" if best is None else "tuned",
        "config": None if best is None else dict(best.config),
        "confirmed": isinstance(best, Confirmation),
        "latency_s": latency_s,
        "gflops": task.workload.flop / latency_s / 1e9 if latency_s else None,
        "statuses": dict(sorted(Counter(trial.measurement.status.value for trial in trials).items())),
        "elapsed_s": trials[-1].elapsed_s if trials else 0.0,
    }


def _document(plain: Mapping[str, Any]) -> str:
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
