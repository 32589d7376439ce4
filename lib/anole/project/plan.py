"""The plan of a project: the state of its tasks and the remaining jobs, from models.yaml and existing files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from anole.config.entries import EXHAUSTIVE, Budget, BuildSpec
from anole.documents import layout
from anole.documents.build import FILE, read_build
from anole.documents.manifest import ListedTask, read_manifest
from anole.errors import DocumentError
from anole.project.lock_drift import LockDrift, find_lock_drift
from anole.project.pipeline import Pipeline
from anole.project.quantized_models import is_quantized


@dataclass(frozen=True)
class PlannedTask:
    """A task with one tuner and one budget.

    Attributes:
        used_by: the number of calls per run of each model, by model name.
        layers: the names of the task's layers, by model name.
        measured: number of measured configs, at most the budget's trials.
        best_gflops: GFLOP/s of the best measured config; None if no config worked.
        receipt: path of the task's receipt, which exists when a task with a budget is tuned.
        locked: whether the task is not tuned because all builds that use it lock its config.
    """

    key: str
    label: str
    flop: int
    used_by: Mapping[str, int]
    layers: Mapping[str, tuple[str, ...]]
    preset: str
    budget: Budget
    measured: int
    failures: int
    best_gflops: float | None
    tuned: bool
    receipt: Path
    locked: bool = False

    @property
    def spent(self) -> str:
        """The measured trials and the budget, as text."""
        budget = self.budget
        if not budget.max_trials:
            return "none"
        if self.locked and not self.measured:
            return "locked"
        if budget.seconds is not None:
            return f"{self.measured} in {budget.seconds} s shared"
        if budget == EXHAUSTIVE:
            return f"{self.measured}, all programs" if self.tuned else f"{self.measured} of all"
        return f"{self.measured} of {budget.trials} shared" if budget.shared else f"{self.measured}/{budget.trials}"


@dataclass(frozen=True)
class PlannedStep:
    """A job that would run: its stage, its subject, such as a model, task or build, and the reason."""

    stage: str
    subject: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """All known tasks, the next steps in order, the reasons for skipping builds, and outdated locks."""

    tasks: tuple[PlannedTask, ...]
    steps: tuple[PlannedStep, ...]
    skipped: Mapping[str, str] = field(default_factory=dict, hash=False)
    behind: tuple[LockDrift, ...] = ()


def make_plan(pipeline: Pipeline) -> Plan:
    """Return the state of a project's tasks and the remaining jobs; raise StoreError for a corrupt shard.

    The tasks of a model are known only after the model is extracted.
    """
    extract_steps = dict(_extract_steps(pipeline))
    extracted = [build for build in pipeline.spec.tuned if pipeline.manifest(build) not in extract_steps]
    needed_receipts = {receipt for build in extracted for receipt in pipeline.receipts(build)}
    tasks = _plan_tasks(pipeline, extracted, needed_receipts)
    missing_receipts = {task.receipt for task in tasks if not task.tuned}
    steps = list(extract_steps.values())
    steps += _tune_steps(tasks)
    ready_builds = {build.name for build in extracted if not missing_receipts.intersection(pipeline.receipts(build))}
    for build in pipeline.spec.builds.values():
        steps += _build_steps(pipeline, build, build.name in ready_builds)
    for accelerator in pipeline.spec.accelerators.values():
        exists = (pipeline.project / layout.accelerator_path(accelerator.name)).exists()
        if not exists or not ready_builds.issuperset(search.name for search in accelerator.searches):
            steps.append(PlannedStep("accelerator", accelerator.name, "its tasks change" if exists else "new"))
    is_merged = all((pipeline.project / path).exists() for path in (layout.DATABASE, layout.MERGED))
    if steps or not is_merged:
        steps.append(PlannedStep("merge", str(layout.DATABASE), "new results" if steps else "missing"))
    return Plan(tuple(tasks), tuple(steps), pipeline.skipped, tuple(find_lock_drift(pipeline, extracted)))


def _extract_steps(pipeline: Pipeline) -> Iterator[tuple[Path, PlannedStep]]:
    for name in pipeline.undescribed:
        yield layout.described_path(name), PlannedStep("describe", name, "no node has described it yet")
    quantize_reasons = dict(_quantize_reasons(pipeline))
    for model, quantize_reason in quantize_reasons.items():
        yield layout.quantized_path(model), PlannedStep("quantize", model, quantize_reason)
    for build in pipeline.spec.tuned:
        path = pipeline.manifest(build)
        is_requantized = is_quantized(pipeline.spec, build.target) and build.model in quantize_reasons
        reason = _extract_reason(pipeline, build, path, is_requantized)
        if reason is not None:
            yield path, PlannedStep("extract", f"{build.model} for {build.target}", reason)


def _quantize_reasons(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """Yield the models that would be quantized, with the reasons."""
    models = [build.model for build in pipeline.spec.tuned if is_quantized(pipeline.spec, build.target)]
    for model in dict.fromkeys(models):
        reason = _change_reason(pipeline, pipeline.files(model), layout.quantized_path(model))
        if reason is None and any(_has_changed_files(pipeline, model, build.target) for build in pipeline.spec.tuned):
            reason = "its files have changed"
        if reason is not None:
            yield model, reason


def _has_changed_files(pipeline: Pipeline, model: str, target: str) -> bool:
    """Whether a model was extracted for a target from files with other contents."""
    try:
        return read_manifest(pipeline.project / layout.manifest_path(model, target)).origin.files != pipeline.digest(
            model
        )
    except DocumentError:
        return False


def _extract_reason(pipeline: Pipeline, build: BuildSpec, manifest: Path, is_requantized: bool) -> str | None:
    if not (pipeline.project / manifest).exists():
        return "new"
    if build.target in pipeline.undescribed:
        return f"{build.target} is described again"
    if is_requantized:
        return "it is quantized again"
    if (reason := _change_reason(pipeline, pipeline.files(build.model, build.target), manifest)) is not None:
        return reason
    try:
        pipeline.read_manifest(build.model, build.target)
    except DocumentError as error:
        return error.problem
    return None


def _change_reason(pipeline: Pipeline, files: Iterable[Path], output: Path) -> str | None:
    """Return the reason to compute an output from its files again; None if the output is up to date."""
    output_path = pipeline.project / output
    if not output_path.exists():
        return "new"
    paths = [pipeline.project / file for file in files]
    newer_names = [path.name for path in paths if path.stat().st_mtime_ns > output_path.stat().st_mtime_ns]
    return f"{', '.join(newer_names)} changed" if newer_names else None


def _plan_tasks(pipeline: Pipeline, builds: Iterable[BuildSpec], needed: Collection[Path]) -> list[PlannedTask]:
    tasks: dict[tuple[Path, str], PlannedTask] = {}
    for build in builds:
        receipts = pipeline.receipts_of_tasks(build)
        for entry in pipeline.read_manifest(build.model, build.target).tasks:
            receipt = receipts[entry.key]
            task = tasks.get((receipt, entry.key)) or _plan_task(pipeline, build, entry, receipt)
            tasks[receipt, entry.key] = replace(
                task,
                used_by={**task.used_by, build.model: entry.weight},
                layers={**task.layers, build.model: entry.layers},
                locked=build.budget.max_trials > 0 and receipt not in needed,
            )
    return list(tasks.values())


def _plan_task(pipeline: Pipeline, build: BuildSpec, entry: ListedTask, receipt: Path) -> PlannedTask:
    content = pipeline.recorded(build, entry.key)
    trials = () if content is None else content.trials[: build.budget.max_trials]
    gflops = [trial.gflops for trial in trials if trial.gflops is not None]
    return PlannedTask(
        key=entry.key,
        label=entry.label,
        flop=entry.flop,
        used_by={},
        layers={},
        preset=pipeline.tuners[build.name].preset,
        budget=build.budget,
        measured=len(trials),
        failures=len(trials) - len(gflops),
        best_gflops=max(gflops, default=None),
        tuned=not build.budget.max_trials or (pipeline.project / receipt).exists(),
        receipt=receipt,
    )


def _tune_steps(tasks: Iterable[PlannedTask]) -> Iterator[PlannedStep]:
    groups: dict[Path, list[PlannedTask]] = {}
    for task in tasks:
        if not task.tuned and not task.locked:
            groups.setdefault(task.receipt, []).append(task)
    for first_task, *others in groups.values():
        budget = first_task.budget
        if budget == EXHAUSTIVE:
            yield PlannedStep("tune", first_task.label, "all programs")
            continue
        remaining = max(budget.max_trials - sum(task.measured for task in (first_task, *others)), 0)
        trials = f"{remaining} of {budget.trials} trials" if budget.seconds is None else f"{budget.seconds} s of trials"
        work = f"{trials} with {first_task.preset}"
        subject = f"{len(others) + 1} tasks of {', '.join(first_task.used_by)}" if budget.shared else first_task.label
        yield PlannedStep("tune", subject, work)


def _build_steps(pipeline: Pipeline, build: BuildSpec, is_ready: bool) -> Iterator[PlannedStep]:
    refines = pipeline.candidates(build) > 0
    refine_stages = [("refine", layout.refined_path(build.name), "its tasks change")] if refines else []
    is_relocked = _is_lock_changed(pipeline, build)
    compile_reason = "its lock changed" if is_relocked else "refined again" if refines else "its tasks change"
    stages = [
        *refine_stages,
        ("compile", layout.build_path(build.name), compile_reason),
        ("evaluate", layout.evaluation_path(build.name), "compiled again"),
    ]
    for stage, path, reason in stages:
        exists = (pipeline.project / path).exists()
        is_ready = is_ready and exists and not (stage == "compile" and is_relocked)
        if not is_ready:
            yield PlannedStep(stage, build.name, reason if exists else "new")


def _is_lock_changed(pipeline: Pipeline, build: BuildSpec) -> bool:
    """Whether a build's entry in the lock file has changed since it was compiled."""
    folder = pipeline.project / layout.build_path(build.name)
    if not (folder / FILE).exists():
        return False
    try:
        locked = pipeline.locked(build)
        return read_build(folder).lock != (None if locked is None else locked.key)
    except DocumentError:
        return False
