"""The tune stage: tune one task with its own budget, or all tasks of a model with a shared budget."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from anole.documents import layout
from anole.documents.manifest import read_manifest, read_task
from anole.documents.receipt import SharedReceipts, TuningReceipt, write_receipt
from anole.measure.device_access import device_access
from anole.record import Status
from anole.search.budget import spend
from anole.search.watch import Watch
from anole.targets import get_target
from anole.targets.base import DeviceLocation
from anole.task import Task
from anole.text_format import pluralize
from anole.tune.job import SUSPECT, TaskTuning, TuneOptions
from anole.tune.measurers import Measurers
from anole.tune.progress import Progress

logger = logging.getLogger(__name__)


def tune_task(
    task_path: Path, options: TuneOptions, receipt_path: Path | None = None, *, failures_again: bool = False
) -> None:
    """Tune one task and write its receipt.

    The run's shard is resumed: with a larger budget, only the additional trials are measured; with a smaller one,
    nothing is measured, and the receipt covers the first trials. If another process tunes the same run, wait for it.

    The receipt goes to its default path unless another is given, even if all candidates failed. With `failures_again`,
    recorded trials whose failures the machine may have caused are measured again first.

    Raises:
        DocumentError: the task's file is missing or broken.
        TargetError: trials are missing, and the target is not present on this machine.
        MeasureError: the machine cannot measure.
        StoreError: the shard cannot be used.
    """
    task, n_trials = read_task(task_path), options.n_trials
    with _enter_jobs(task.label, {task: 1}, options, limit=n_trials) as (claim,):
        tuning = claim.tuning
        if failures_again:
            tuning.measure_failures_again()
        tuning.advance(n_trials)
        receipt = tuning.receipt(n_trials)
    _log_receipt(receipt, task_path)
    write_receipt(receipt_path or layout.receipt_path(task.key, receipt.run_key, n_trials), receipt)


def tune_model(
    manifest_path: Path, tasks_dir: Path, options: TuneOptions, receipts_path: Path, seconds: float = math.inf
) -> None:
    """Tune all tasks of a model with one shared budget and write their receipts.

    Trials go to the tasks with the greatest expected saving: slow and frequent tasks that improved in their last
    iterations. No batch begins after `seconds` of searching and measuring, including the time before an interruption.
    Interrupted runs are resumed, and errors raised, as in `tune_task`.
    """
    manifest = read_manifest(manifest_path)
    weights = {read_task(tasks_dir / f"{key}.json"): weight for key, weight in sorted(manifest.weights.items())}
    with _enter_jobs(manifest.model, weights, options) as claims:
        spend(claims, options.n_trials, options.settings.batch, seconds)
        receipts = tuple(claim.tuning.receipt(claim.n_trials) for claim in claims)
    for receipt in receipts:
        _log_receipt(receipt, tasks_dir / f"{receipt.task_key}.json")
    trials = pluralize(sum(receipt.measured for receipt in receipts), "trial")
    logger.info("%s on %s: %s in %s", manifest.model, manifest.target, trials, pluralize(len(receipts), "task"))
    write_receipt(receipts_path, SharedReceipts(options.n_trials, receipts))


def record_trials(tasks: Sequence[Task], options: TuneOptions, seconds: float = math.inf) -> int:
    """Run the trials of tasks one after another, and return the number of tasks that have all their trials.

    Recorded trials are not measured again, no task begins after `seconds`, and no receipts are written. Errors are
    raised as in `tune_task`.
    """
    deadline_s = time.monotonic() + seconds
    for n_done, task in enumerate(tasks):
        if time.monotonic() >= deadline_s:
            return n_done
        label = f"{n_done + 1} of {len(tasks)}: {task.label}"
        with _enter_jobs(label, {task: 1}, options, limit=options.n_trials) as (claim,):
            claim.advance(options.n_trials)
    return len(tasks)


@dataclass(frozen=True)
class _Claim:
    """A task that competes for trials of a shared budget; the model runs it `weight` times. See `Claimant`."""

    tuning: TaskTuning
    weight: int

    @property
    def n_trials(self) -> int:
        return len(self.tuning.trials)

    @property
    def elapsed_s(self) -> float:
        return self.tuning.elapsed_s

    @property
    def done(self) -> bool:
        return self.tuning.done

    @property
    def best_gflops(self) -> float:
        return max((trial.gflops or 0.0 for trial in self.tuning.trials), default=0.0)

    @property
    def latency_s(self) -> float:
        """The task's share of the time of one run of the model, assuming 1 GFLOP/s before the first success."""
        return self.weight * self.tuning.task.workload.flop / 1e9 / (self.best_gflops or 1.0)

    @property
    def expected_saving_s(self) -> float:
        return self.latency_s * self.tuning.expected_gain

    def advance(self, n_trials: int) -> None:
        self.tuning.advance(n_trials)


@contextmanager
def _enter_jobs(
    label: str, weights: Mapping[Task, int], options: TuneOptions, limit: int | None = None
) -> Iterator[Sequence[_Claim]]:
    """Enter the tuning jobs of tasks on one target, which share processes and a progress display."""
    claims: list[_Claim] = []
    with ExitStack() as stack:
        enter = stack.enter_context
        progress = enter(Progress(label, options.n_trials))
        target = next((get_target(task.target) for task in weights), None)
        access = (
            None
            if target is None or target.location is DeviceLocation.SIMULATOR
            else enter(device_access(target, options.remote))
        )
        measurers = enter(Measurers())
        watch = Watch(trial=lambda _: progress.update(*_overall_progress(claims)))
        for task, weight in weights.items():
            tuning = TaskTuning(task, options, measurers, limit=limit, access=access, watch=watch)
            claims.append(_Claim(enter(tuning), weight))
        progress.update(*_overall_progress(claims))
        yield claims


def _log_receipt(receipt: TuningReceipt, task_path: Path) -> None:
    """Log the result of a task; if no candidate worked, also log the remedy for a faulty machine."""
    logger.info("%s", receipt)
    if receipt.status == "failed" and SUSPECT.intersection(receipt.statuses):
        command = f"anole tune {task_path} --seed {receipt.seed} --trials {receipt.measured} --again failures"
        logger.warning("if the machine was at fault, run `%s` with the same tuner to repeat failed trials", command)


def _overall_progress(claims: Sequence[_Claim]) -> tuple[int, float, int, float]:
    """Return the number of trials, the overall GFLOP/s (0 before a success), the numbers of failures and programs."""
    trials = [trial for claim in claims for trial in claim.tuning.trials]
    failures = sum(trial.measurement.status is not Status.OK for trial in trials)
    flop = sum(claim.weight * claim.tuning.task.workload.flop for claim in claims)
    latency_s = sum(claim.latency_s for claim in claims)
    gflops = flop / latency_s / 1e9 if any(claim.best_gflops for claim in claims) else 0.0
    return len(trials), gflops, failures, sum(claim.tuning.n_programs for claim in claims)
