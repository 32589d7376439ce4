"""Choose the config with which each task of a network is compiled, and give the reason if it was not tuned."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from anole.documents.build import BuiltTask, Coverage
from anole.documents.lockfile import LockedReceipt
from anole.documents.manifest import ListedTask, Manifest
from anole.documents.receipt import Receipt, Receipts, TriedConfig
from anole.errors import BuildError, ConfigError
from anole.record import Config
from anole.targets.base import Target
from anole.task import Task, Workload

_log = logging.getLogger(__name__)

_NOT_TUNED = "it was not tuned"


@dataclass(frozen=True)
class Match:
    """One task of a network and the config that it is compiled with.

    Attributes:
        config: None if its template cannot schedule the task in this network; then the default schedule applies.
        reason: why the task is not tuned; None if it is.
        run_key: key of the run that found the config.
        refined: the configs that were tried within the network.
        unscheduled: the config that could not be scheduled, if `config` is None.
        locked: whether the config comes from the lock file and must not be replaced.
    """

    task: Task
    weight: int
    layers: tuple[str, ...]
    config: Config | None = field(hash=False)
    reason: str | None
    run_key: str | None = None
    latency_s: float | None = None
    refined: tuple[TriedConfig, ...] = ()
    unscheduled: Config | None = field(default=None, hash=False)
    locked: bool = False

    @property
    def flop(self) -> int:
        """Floating-point operations of all layers of this task."""
        return self.task.workload.flop * self.weight

    def as_untuned(self, reason: str, config: Config | None = None) -> Match:
        """Return the match without its tuned config."""
        return replace(self, config=config, reason=reason, run_key=None, latency_s=None)

    def as_unscheduled(self, reason: str) -> Match:
        """Return the match without its config, which the template could not schedule in the network."""
        return replace(self.as_untuned(reason), unscheduled=self.config)

    @property
    def built(self) -> BuiltTask:
        """The task's entry in the build's description."""
        return BuiltTask(
            key=self.task.key,
            label=self.task.label,
            flop=self.task.workload.flop,
            weight=self.weight,
            layers=self.layers,
            config=self.config,
            matched="tuned" if self.reason is None else "default",
            run_key=self.run_key,
            latency_s=self.latency_s,
            reason=self.reason,
            refined=self.refined,
            unscheduled=self.unscheduled,
            locked=self.locked or None,
        )


def match_tasks(manifest: Manifest, workloads: Iterable[Workload], receipts: Receipts, target: Target) -> list[Match]:
    """Match the tasks, in the manifest's order, with their configs; `workloads` belong to the current model.

    Raises:
        BuildError: the model has changed since it was extracted, or a locked config is not in its space.
    """
    tasks = {
        task.key: task
        for workload in dict.fromkeys(workloads)
        for task in [Task(workload, target.description, target.template_version(workload))]
    }
    listed = {entry.key for entry in manifest.tasks}
    if listed != set(tasks):
        new_labels = [task.label for key, task in tasks.items() if key not in listed]
        raise BuildError(
            f"model {manifest.model} has changed since it was extracted: "
            f"{', '.join(new_labels) or 'layers are missing'}; extract it again"
        )
    return [_match(entry, tasks[entry.key], receipts.get(entry.key), target) for entry in manifest.tasks]


def coverage(matches: Sequence[Match]) -> Coverage:
    """Return the share of the work, in floating-point operations, that is tuned."""
    total = sum(match.flop for match in matches)
    tuned = sum(match.flop for match in matches if match.reason is None)
    return Coverage(tuned, total, tuned / total if total else 1.0)


def warn_of_untuned(build: str, matches: Sequence[Match], trials: int) -> None:
    """Warn about layers that run untuned, with their share of the work.

    With a budget of no trials, default configs are expected.
    """
    total = sum(match.flop for match in matches)
    for match in matches:
        if match.reason is not None and (trials or match.reason != _NOT_TUNED):
            _log.warning(
                "%s: %s is NOT TUNED (%s), %.1f %% of the work: %s",
                build, match.task.label, match.reason, 100 * match.flop / total, ", ".join(match.layers),
            )  # fmt: skip


def warn_of_float32_layers(build: str, matches: Sequence[Match]) -> None:
    """Warn about float32 layers in a quantized network, with the reason and their share of the work."""
    total = sum(match.flop for match in matches)
    if not any(match.task.workload.dtype == "uint8" for match in matches):
        return
    for match in matches:
        if match.task.workload.dtype == "float32":
            _log.warning(
                "%s: %s is computed in float32 (%s), %.1f %% of the work: %s",
                build, match.task.label, _float32_reason(match.task.workload), 100 * match.flop / total,
                ", ".join(match.layers),
            )  # fmt: skip


def _float32_reason(workload: Workload) -> str:
    if not getattr(workload, "exact", False):
        return "its operands are not both quantized"
    return "its groups are too small, or its weights need more than 8 bits"


def _match(entry: ListedTask, task: Task, receipt: Receipt | None, target: Target) -> Match:
    match = Match(task, entry.weight, entry.layers, None, None, refined=receipt.refined if receipt is not None else ())
    default = target.default_config(task.workload)
    if receipt is None:
        return match.as_untuned(_NOT_TUNED, default)
    if receipt.config is None:
        reason = f"none of {receipt.trials} candidates worked" if receipt.trials else "the budget had no trials for it"
        return match.as_untuned(reason, default)
    space = target.space(task.workload)
    try:
        rejection = space.rejection(receipt.config)
    except ConfigError as error:
        rejection = str(error)
    if isinstance(receipt, LockedReceipt):
        if rejection is not None:
            raise BuildError(
                f"{receipt.place}: config: does not fit: {rejection}; use a config of the task's space, or delete the "
                "task's entry to use its best recorded config"
            )
        # Restore the knobs' order: builds contain configs, and must be reproducible byte for byte.
        match = replace(match, locked=True)
        receipt = replace(receipt, config=space.config(space.vector(receipt.config)))
    if rejection is not None:
        return match.as_untuned(f"its tuned config does not fit: {rejection}", default)
    if not receipt.run_key:
        reason = "it is locked to a config that was not tuned" if match.locked else "its config was not tuned"
        return replace(match, config=receipt.config, latency_s=receipt.latency_s, reason=reason)
    return replace(match, config=receipt.config, run_key=receipt.run_key, latency_s=receipt.latency_s)
