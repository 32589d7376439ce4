"""The stages that go from files to files: a model to its tasks, and a task to its receipt."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from anole import layout
from anole.errors import ExtractError
from anole.extract import extract
from anole.keys import write_atomically
from anole.machine import host_facts, software_versions
from anole.measure import Measurer
from anole.pipeline import extract_versions, read_manifest
from anole.progress import Progress
from anole.record import Confirmation, Run, Status, Trial
from anole.settings import TunerSettings
from anole.spec import ModelSpec
from anole.store.database import merge
from anole.store.documents import read_build
from anole.store.shard import Shard
from anole.targets import get_target
from anole.task import Task
from anole.tuner import TUNER_VERSION, tune

logger = logging.getLogger(__name__)


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
    hardware = get_target(description)
    manifest, tasks = extract(model, target, description, lambda workload: hardware.template_version(workload.operator))
    for task in tasks:
        write_atomically(tasks_dir / f"{task.key}.json", _document(task.to_json()))
    write_atomically(manifest_path, _document({**manifest, "versions": extract_versions(description)}))


def tune_task(
    task_path: Path,
    settings: TunerSettings,
    seed: int,
    n_trials: int,
    shards_dir: Path,
    receipt_path: Path | None = None,
) -> None:
    """Tunes one task and writes its receipt.

    The run's shard is resumed: with a larger budget only the difference is measured; with a smaller one
    nothing is, and the receipt tells of the first trials. Another process that is at it is waited for.

    Args:
        task_path: the task, as `extract_model` wrote it.
        settings: of the tuner.
        seed: of the tuner.
        n_trials: how many configs are measured, those in the shard included.
        shards_dir: of all shards.
        receipt_path: what says what came of it, even when all candidates failed; its usual place when None.

    Raises:
        ExtractError: the task is not there.
        TargetError: the target is not present on this machine.
        MeasureError: measuring is not possible at all.
        StoreError: the shard cannot be used.
    """
    task = _read_task(task_path)
    run = Run(
        task.key,
        settings.preset,
        seed,
        TUNER_VERSION,
        settings.to_json(),
        threads=int(task.target.get("threads", 1)),
        host=host_facts(),
        versions=software_versions(),
    )
    with Shard.open(shards_dir, run, task, wait=True) as shard:
        best = _tune(shard, task, settings, seed, n_trials)
        receipt = _receipt(shard, task, n_trials, best)
    logger.info("%s: %s", task.label, _outcome(receipt))
    write_atomically(receipt_path or layout.receipt_path(task.key, run.key, n_trials), _document(receipt))


def compile_network(
    build: str, order: Mapping[str, Any], manifest_path: Path, receipt_paths: Iterable[Path], folder: Path
) -> None:
    """Compiles a build from what extracting and tuning left.

    Args:
        build: its name.
        order: what `Pipeline.order` says of it.
        manifest_path: of its model on its target.
        receipt_paths: of the model's tasks; what has none stays untuned, which is said.
        folder: where the build goes.

    Raises:
        ExtractError: the manifest is missing, broken or stale, or a receipt is.
        BuildError: the network cannot be compiled.
    """
    from anole.build import BuildSettings, compile_build

    manifest = read_manifest(manifest_path, order["origin"])
    receipts = [_read_receipt(path) for path in receipt_paths]
    model = ModelSpec.from_json(order["model"], order["origin"]["entry"])
    settings = BuildSettings(build, order["preset"], order["trials"], order["seed"])
    compile_build(model, manifest, settings, {receipt["task_key"]: receipt for receipt in receipts}, folder)


def merge_builds(builds: Iterable[str], shards_dir: Path, database_path: Path) -> None:
    """Folds all shards, and what there is of some builds, into the database.

    Args:
        builds: their names; one that is not compiled yet is left out.
        shards_dir: of all shards.
        database_path: made when it is not there.

    Raises:
        StoreError: something cannot be read, or the database cannot be written.
    """
    compiled = [path for name in builds if (path := layout.build_path(name) / "build.json").exists()]
    documents = [read_build(path).plain for path in compiled]
    manifests = {layout.manifest_path(build["model"], build["target"]) for build in documents}
    evaluations = [path for build in documents if (path := layout.evaluation_path(build["name"])).exists()]
    merged = merge(shards_dir, sorted(manifests), compiled, evaluations, database_path)
    logger.info(
        "%s: %d runs, %d trials; %d runs are new or longer than before",
        database_path,
        merged.runs,
        merged.trials,
        merged.changed_runs,
    )


def _read_receipt(path: Path) -> dict[str, Any]:
    try:
        receipt = json.loads(path.read_text(encoding="utf-8"))
        return {name: receipt[name] for name in ("task_key", "run_key", "trials", "config", "latency_s")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "delete it and tune again, which measures nothing twice"
        raise ExtractError(f"{path}: is no receipt ({type(error).__name__}: {error}); {remedy}") from error


def _read_task(path: Path) -> Task:
    remedy = "extract its model again (snakemake --forcerun extract)"
    try:
        task = Task.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise ExtractError(f"{path}: there is no such task; {remedy}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ExtractError(f"{path}: is no task ({type(error).__name__}: {error}); {remedy}") from error
    if path.stem != task.key:
        raise ExtractError(f"{path}: holds the task {task.key}; {remedy}")
    return task


def _tune(shard: Shard, task: Task, settings: TunerSettings, seed: int, n_trials: int) -> Trial | Confirmation | None:
    recorded = shard.trials[:n_trials]
    statuses = Counter(trial.measurement.status for trial in recorded)
    best_gflops = max((trial.gflops or 0.0 for trial in recorded), default=0.0)
    best_s = min(filter(None, (trial.measurement.latency_s for trial in recorded)), default=None)
    with ExitStack() as stack:
        progress = stack.enter_context(Progress(task.label, n_trials))
        if recorded:
            progress.update(len(recorded), best_gflops, len(recorded) - statuses[Status.OK])
        measurer = cache(lambda: stack.enter_context(Measurer(task, settings.evaluator, best_s=best_s)))

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
            on_iteration=shard.append_iteration,
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


def _outcome(receipt: Mapping[str, Any]) -> str:
    if receipt["status"] == "failed":
        return f"none of {receipt['measured']} candidates worked"
    return f"{receipt['gflops']:.1f} GFLOP/s, the best of {receipt['measured']} trials"


def _document(plain: Mapping[str, Any]) -> str:
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
