"""Find outdated entries of the lock file: better configs in the records, other tasks, or unknown builds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anole.config.entries import BuildSpec
from anole.documents import layout
from anole.documents.lockfile import LockedBuild, LockedTask
from anole.documents.manifest import ListedTask
from anole.documents.receipt import read_refined
from anole.errors import DocumentError
from anole.keys import canonical_json
from anole.project.pipeline import Pipeline
from anole.record import Config, Confirmation, Measurement, Trial
from anole.search.confirm import fastest, last_round
from anole.search.ties import is_slower
from anole.store.content import ShardContent
from anole.targets import get_target
from anole.targets.base import DeviceLocation


@dataclass(frozen=True)
class LockDrift:
    """One difference between the lock file and the records or models.yaml.

    Attributes:
        subject: the label of a task, or the build's name for the entire entry.
    """

    build: str
    subject: str
    problem: str


def find_lock_drift(pipeline: Pipeline, extracted: Sequence[BuildSpec]) -> list[LockDrift]:
    """Return all differences; the manifests of the `extracted` builds must be up to date."""
    known_builds, file = {**pipeline.spec.builds, **pipeline.skipped}, pipeline.spec.file
    unknown_names = [name for name in pipeline.lockfile.builds if name not in known_builds]
    drifts = [LockDrift(name, name, f"{file} has no such build") for name in unknown_names]
    for build in extracted:
        entry = pipeline.locked(build)
        if entry is not None:
            drifts += _build_drifts(pipeline, build, entry)
    return drifts


def _build_drifts(pipeline: Pipeline, build: BuildSpec, entry: LockedBuild) -> Iterator[LockDrift]:
    tasks = pipeline.read_manifest(build.model, build.target).tasks
    tried = _tried_configs(pipeline, build)
    for task in tasks:
        locked = entry.tasks.get(task.key)
        if locked is None:
            yield LockDrift(build.name, task.label, "is not locked; the records choose its config")
        elif tried is not None and (problem := _describe_speedup(pipeline, build, task, locked, tried)) is not None:
            yield LockDrift(build.name, task.label, problem)
    keys = {task.key for task in tasks}
    for key, locked in entry.tasks.items():
        if key not in keys:
            yield LockDrift(build.name, locked.label, "is locked, but the model has no such task")


def _describe_speedup(
    pipeline: Pipeline, build: BuildSpec, task: ListedTask, locked: LockedTask, tried: frozenset[str]
) -> str | None:
    """Describe how much faster a task's best recorded config is than the locked config; None if it is not faster.

    The result is also None if the best config was `tried` within the network, where refining made the choice.
    """
    content = pipeline.recorded(build, task.key)
    if content is None:
        return None
    trials, confirmations = _comparable_records(pipeline, build, content, locked.config)
    ranking: Sequence[Trial | Confirmation] = confirmations or fastest(trials, lambda *_: 1.0)
    best = next(iter(ranking), None)
    if best is None or _identity(best.config) in {_identity(locked.config), *tried}:
        return None
    new, old = _comparable_pair(best, locked, trials, confirmations)
    if new.latency_s is None or not is_slower(old, new):
        return None
    locked_text = "fails" if old.latency_s is None else f"takes {1e3 * old.latency_s:.3g} ms"
    return f"{locked_text}, but a recorded config takes {1e3 * new.latency_s:.3g} ms"


def _comparable_records(
    pipeline: Pipeline, build: BuildSpec, content: ShardContent, config: Config
) -> tuple[Sequence[Trial], Sequence[Confirmation]]:
    """Return the trials within a build's budget and confirmations; on a simulator, trials on the locked hardware."""
    trials = content.trials[: build.budget.max_trials]
    confirmations = last_round(content.confirmations, len(trials))
    if pipeline.location(build.target) != DeviceLocation.SIMULATOR:
        return trials, confirmations
    names = get_target(content.task.target).space(content.task.workload).names_of("hardware")
    return [trial for trial in trials if all(trial.config[name] == config.get(name) for name in names)], ()


def _comparable_pair(
    best: Trial | Confirmation, locked: LockedTask, trials: Sequence[Trial], confirmations: Sequence[Confirmation]
) -> tuple[Measurement, Measurement]:
    """Return comparable measurements of the best (new) and the locked (old) config.

    They come from the same round of confirmations, or else from the same run. Otherwise the locked latency is used,
    with the noise of the best config's measurement, or this measurement itself if the lock has no latency.
    """
    sources: tuple[Sequence[Trial | Confirmation], ...] = (confirmations, trials)
    for records in sources:
        measurements = {_identity(record.config): record.measurement for record in reversed(records)}
        new, old = measurements.get(_identity(best.config)), measurements.get(_identity(locked.config))
        if new is not None and old is not None:
            return new, old
    new = best.measurement
    if locked.latency_s is None:
        return new, new
    return new, Measurement(new.status, None, locked.latency_s, cv=new.cv, repeats=new.repeats)


def _tried_configs(pipeline: Pipeline, build: BuildSpec) -> frozenset[str] | None:
    """Return the configs that were tried within a build's network; None if it is refined but they are unknown."""
    if not build.refine:
        return frozenset()
    try:
        refined = read_refined(pipeline.project / layout.refined_path(build.name))
    except DocumentError:
        return None
    return frozenset(_identity(tried.config) for receipt in refined.receipts for tried in receipt.refined)


def _identity(config: Config) -> str:
    return canonical_json(dict(config))
