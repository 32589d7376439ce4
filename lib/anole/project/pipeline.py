"""The pipeline that a models.yaml defines: the manifests, runs and receipts that each build depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from anole.config.entries import AcceleratorOrder, AcceleratorSpec, BuildSpec, ModelSpec, Spec
from anole.config.reading import load_spec
from anole.config.source import model_files
from anole.documents import layout
from anole.documents.lockfile import LockedBuild, Lockfile, lockfile_path, read_lockfile
from anole.documents.manifest import Manifest, Order, Origin, read_manifest
from anole.errors import DocumentError, SpecError
from anole.extract.stage import extract_versions
from anole.keys import content_key
from anole.node import Node
from anole.project.content import content_digest
from anole.project.hardware import Hardware, describe_target, has_records, is_detected_on_nodes, keep, look_for
from anole.project.quantized_models import is_quantized, model_for_target
from anole.record import Run
from anole.search.loop import TUNER_VERSION
from anole.search.presets import read_tuner
from anole.search.settings import TunerSettings
from anole.store.content import ShardContent
from anole.store.shard import read_shard, shard_path
from anole.targets import get_target
from anole.targets.base import DeviceLocation


@dataclass(frozen=True)
class Pipeline:
    """A checked models.yaml with the tuners, targets and paths that follow from it on this machine.

    Attributes:
        tuners: the tuner settings of each build and each accelerator search, by name.
        descriptions: the complete description of each used target that could be described, by target name.
        project: the folder that all paths are relative to.
        absences: the reason that a target is unavailable, by target name; available targets have no entry.
        skipped: the reason that a build is skipped, by build name: its target is absent and not required.
        lockfile: the project's lock file; a build with an entry is not refined, and only its other tasks are tuned.
    """

    spec: Spec
    tuners: Mapping[str, TunerSettings] = field(hash=False)
    descriptions: Mapping[str, Mapping[str, Any]] = field(hash=False)
    project: Path
    absences: Mapping[str, str] = field(default_factory=dict, hash=False)
    skipped: Mapping[str, str] = field(default_factory=dict, hash=False)
    lockfile: Lockfile = field(default_factory=lambda: Lockfile(layout.LOCKFILE))
    _runs: dict[tuple[str, str], Run] = field(default_factory=dict, init=False, repr=False, compare=False)
    _manifests: dict[tuple[Path, int], Manifest] = field(default_factory=dict, init=False, repr=False, compare=False)
    _digests: dict[str, str | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def load(
        cls, path: Path | str = "models.yaml", overrides: Mapping[str, Any] | None = None, kept: bool = False
    ) -> Self:
        """Read and check models.yaml and the lock file next to it.

        Overrides replace values of the file, see `load_spec`. If `kept`, use stored descriptions, see `look_for`.

        Raises:
            SpecError: for the first mistake, including a lock file entry for another target, and an absent target that
                is required and whose builds have trials that are not recorded.
            StoreError: a shard of a build for an absent target is corrupt.
        """
        spec = load_spec(path, overrides)
        read_tuner(spec.tuning, "tuning")
        tuners = {build.name: read_tuner(build.tuning, build.path) for build in spec.tuned}
        target_names = sorted({build.target for build in spec.tuned})
        project = Path(path).parent
        targets = {name: look_for(spec.targets[name], project, kept) for name in target_names}
        absences = {name: hardware.absence for name, hardware in targets.items() if hardware.absence is not None}
        skipped = {
            name: absences[build.target]
            for name, build in spec.builds.items()
            if build.target in absences and not spec.targets[build.target].required
        }
        spec = replace(spec, builds={name: build for name, build in spec.builds.items() if name not in skipped})
        descriptions = {name: item.description for name, item in targets.items() if item.description is not None}
        lockfile = read_lockfile(lockfile_path(project))
        pipeline = cls(spec, tuners, descriptions, project, absences, skipped, lockfile)
        for build in spec.builds.values():
            if build.target in descriptions:
                lockfile.check_target(build.name, descriptions[build.target])
            pipeline._check_measurable(build)
        return pipeline

    @property
    def undescribed(self) -> list[str]:
        """The names of the targets on a cluster that no node has described yet."""
        names = dict.fromkeys(build.target for build in self.spec.tuned)
        return [name for name in names if name not in self.descriptions]

    def keep_targets(self) -> None:
        """Store the targets' descriptions for the jobs of this workflow, which may run on other machines."""
        for name in {*self.descriptions, *self.absences}:
            if not is_detected_on_nodes(self.spec.targets[name]):
                hardware = Hardware(self.descriptions.get(name), self.absences.get(name))
                keep(self.spec.targets[name], hardware, self.project)

    def files(self, model: str, target: str | None = None) -> list[Path]:
        """Return the files of a model on a target; if one changes, the model is extracted again.

        Without a target, return the model's own files, before quantization.
        """
        if target is not None and is_quantized(self.spec, target):
            return [layout.quantized_path(model)]
        return files_of(self.spec.models[model], self.project)

    def manifest(self, build: BuildSpec) -> Path:
        """Return the path of the manifest of a build's model and target."""
        return layout.manifest_path(build.model, build.target)

    def origin(self, model: str, target: str) -> Origin:
        """Return the origin of an up-to-date manifest."""
        description = self.description(target)
        entry, files = model_for_target(self.spec, model, target).to_json(), self.digest(model)
        return Origin(entry, dict(description), extract_versions(description), files)

    def digest(self, model: str) -> str | None:
        """Return the digest of a model's own files, cached since the first call."""
        if model not in self._digests:
            self._digests[model] = content_digest(self.files(model), self.project)
        return self._digests[model]

    def description(self, target: str) -> Mapping[str, Any]:
        """Return a target's complete description; raise SpecError if no node has described it yet."""
        if target in self.descriptions:
            return self.descriptions[target]
        return describe_target(self.spec.targets[target], self.project)

    def order(self, build: BuildSpec) -> Order:
        """Return everything that compiling a build depends on, except its receipts."""
        locked = self.locked(build)
        return Order(
            model=build.model,
            target=build.target,
            origin=self.origin(build.model, build.target),
            preset=self.tuners[build.name].preset,
            trials=build.budget.max_trials,
            shared=build.budget.shared,
            seed=build.seed,
            lock=None if locked is None else locked.key,
        )

    def accelerator_order(self, accelerator: AcceleratorSpec) -> AcceleratorOrder:
        """Return everything that an accelerator's front depends on, except its receipts."""
        targets = {name: self.description(name) for name in accelerator.targets}
        return AcceleratorOrder(accelerator.models, targets, accelerator.settings)

    def locked(self, build: BuildSpec) -> LockedBuild | None:
        """Return a build's entry in the lock file; None without an entry."""
        return self.lockfile.builds.get(build.name)

    def candidates(self, build: BuildSpec) -> int:
        """Return the number of candidates per task to try within a build's network; 0 if the build is not refined."""
        return 0 if self.locked(build) is not None else build.refine

    def read_manifest(self, model: str, target: str) -> Manifest:
        """Return the manifest of a model on a target.

        Raises:
            DocumentError: the manifest is missing, broken or stale.
        """
        path = self.project / layout.manifest_path(model, target)
        key = (path, path.stat().st_mtime_ns if path.exists() else 0)
        if key not in self._manifests:
            self._manifests[key] = read_manifest(path, self.origin(model, target))
        return self._manifests[key]

    def run(self, build: BuildSpec, task_key: str) -> Run:
        """Return the run that tunes a task for a build."""
        key = (build.name, task_key)
        if key not in self._runs:
            tuner = self.tuners[build.name]
            self._runs[key] = Run(task_key, tuner.preset, build.seed, TUNER_VERSION, tuner.to_json())
        return self._runs[key]

    def recorded(self, build: BuildSpec, task_key: str) -> ShardContent | None:
        """Return the records of the run that tunes a task for a build; None if the run has not begun.

        Raises:
            StoreError: the shard is corrupt.
        """
        shard = shard_path(self.project / layout.SHARDS, self.run(build, task_key))
        return read_shard(shard) if shard.exists() and shard.stat().st_size else None

    def receipts(self, build: BuildSpec) -> list[Path]:
        """Return the receipts that a build needs: one per task, or a single one if its tasks share a budget.

        Builds without trials and locked tasks need no receipt.

        Raises:
            DocumentError: the manifest is missing, broken or stale, or a task to tune is missing.
            SpecError: some trials are missing, and the target is absent.
        """
        self._check_measurable(build)
        receipts = {key: path for key, path in self.receipts_of_tasks(build).items() if self._is_tuned(build, key)}
        for key, receipt in receipts.items():
            if not (self.project / receipt).exists() and not (self.project / layout.task_path(key)).exists():
                raise DocumentError(layout.task_path(key), "there is no such file", "extract")
        return list(dict.fromkeys(receipts.values()))

    def receipts_of_tasks(self, build: BuildSpec) -> dict[str, Path]:
        """Return the path of each task's receipt by task key; with a shared budget, all paths are the same.

        Raises as `read_manifest`.
        """
        weights, trials = self.read_manifest(build.model, build.target).weights, build.budget.max_trials
        if build.budget.shared:
            key = self.shared_key(build, weights)
            return dict.fromkeys(weights, layout.shared_receipts_path(build.model, build.target, key, trials))
        return {key: layout.receipt_path(key, self.run(build, key).key, trials) for key in weights}

    def unmeasured(self, build: BuildSpec) -> list[str]:
        """Return the labels of the tasks of a build that still have trials to measure.

        Raises as `read_manifest` and `recorded`.
        """
        budget, receipts = build.budget, self.receipts_of_tasks(build)
        tasks = [
            task
            for task in self.read_manifest(build.model, build.target).tasks
            if not (self.project / receipts[task.key]).exists()
        ]
        contents = {task.key: self.recorded(build, task.key) for task in tasks}
        counts = {key: 0 if content is None else len(content.trials) for key, content in contents.items()}
        if budget.shared:
            elapsed_s = sum(content.trials[-1].elapsed_s for content in contents.values() if content and content.trials)
            if budget.seconds is not None and elapsed_s >= budget.seconds:
                return []
            counts = dict.fromkeys(counts, sum(counts.values()))
        return [
            task.label for task in tasks if self._is_tuned(build, task.key) and counts[task.key] < budget.max_trials
        ]

    def _is_tuned(self, build: BuildSpec, task_key: str) -> bool:
        """Whether a task must be tuned for a build, which has trials and does not lock the task's config."""
        locked = self.locked(build)
        return build.budget.max_trials > 0 and (locked is None or task_key not in locked.tasks)

    def _check_measurable(self, build: BuildSpec) -> None:
        """Raise SpecError if a build has trials to measure on an absent target."""
        absence = self.absences.get(build.target)
        if absence is None or not build.budget.max_trials:
            return
        try:
            labels = self.unmeasured(build)
            unmeasured = f"{len(labels)} tasks, such as {labels[0]}," if labels else ""
        except DocumentError:
            records = self.locked(build) or has_records(self.project / layout.SHARDS, self.descriptions[build.target])
            unmeasured = "" if records else "all tasks"
        if unmeasured:
            raise SpecError(
                f"targets.{build.target}",
                f"{absence}, but the records of {unmeasured} are missing for build {build.name}; import them from the "
                "machine that measured them (`anole import`), or set the target's `required: false` to skip its builds",
                self.spec.file,
            )

    def shared_key(self, build: BuildSpec, weights: Mapping[str, int]) -> str:
        """Return the content key of a shared budget, made from the tasks' runs and weights, in order, and seconds."""
        seconds = [] if build.budget.seconds is None else [build.budget.seconds]
        return content_key([*([self.run(build, key).key, weight] for key, weight in weights.items()), *seconds])

    def location(self, target: str) -> DeviceLocation:
        """Return the location where candidates for a target run."""
        if self.spec.targets[target].remote is not None:
            return DeviceLocation.ELSEWHERE
        return get_target(self.description(target)).location


def files_of(model: ModelSpec, project: Path) -> list[Path]:
    """Return the files that define a model, relative to the project if they are in it."""
    samples = [] if model.samples is None else [Path(model.samples)]
    return [*model_files(model.source, project), *samples]


def find_model(path: Path, model: str, target: str) -> tuple[ModelSpec, Mapping[str, Any], str | None]:
    """Return a model of a models.yaml, the description of one of its targets, and the digest of the model's files.

    Raises:
        SpecError: models.yaml has a mistake, or no such model or target.
        DocumentError: the target uses the quantized file of the model, which does not exist.
    """
    spec = load_spec(path)
    Node(model, "models", spec.file).choice(spec.models, "one of the models")
    Node(target, "targets", spec.file).choice(spec.targets, "one of the targets")
    quantized = layout.quantized_path(model)
    if is_quantized(spec, target) and not quantized.exists():
        raise DocumentError(quantized, "there is no such file", "quantize")
    files = content_digest(files_of(spec.models[model], path.parent), path.parent)
    return model_for_target(spec, model, target), describe_target(spec.targets[target], path.parent), files


@dataclass(frozen=True)
class BuildInputs:
    """The inputs of a build's stages, for commands that users run directly.

    Attributes:
        receipts: the receipts that exist.
        ingredients: the receipts to compile with: the refined receipts if they exist, otherwise `receipts`.
        refine: number of candidates per task to try within the network.
    """

    order: Order
    manifest: Path
    receipts: tuple[Path, ...]
    ingredients: tuple[Path, ...]
    refine: int


def find_build(path: Path, name: str) -> BuildInputs:
    """Return the inputs for compiling or refining a build of a models.yaml; raise as `Pipeline.receipts`."""
    pipeline = Pipeline.load(path)
    Node(name, "builds", pipeline.spec.file).choice(pipeline.spec.builds, "one of the builds")
    build = pipeline.spec.builds[name]
    receipts = tuple(receipt for receipt in pipeline.receipts(build) if receipt.exists())
    refined = layout.refined_path(name)
    refine = pipeline.candidates(build)
    ingredients = (refined,) if refine and refined.exists() else receipts
    return BuildInputs(pipeline.order(build), pipeline.manifest(build), receipts, ingredients, refine)


def find_accelerator(path: Path, name: str) -> tuple[AcceleratorOrder, tuple[Path, ...]]:
    """Return the order and receipts of an accelerator of a models.yaml; raise as `Pipeline.receipts`."""
    pipeline = Pipeline.load(path)
    Node(name, "accelerators", pipeline.spec.file).choice(pipeline.spec.accelerators, "one of the accelerators")
    accelerator = pipeline.spec.accelerators[name]
    receipts = [receipt for search in accelerator.searches for receipt in pipeline.receipts(search)]
    return pipeline.accelerator_order(accelerator), tuple(dict.fromkeys(receipts))
