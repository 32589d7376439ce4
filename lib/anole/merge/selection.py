"""Which runs are chosen from a folder of shards or from a database: by task, model, target, preset, run or time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from anole.documents.manifest import read_manifest
from anole.errors import StoreError, suggestion
from anole.keys import is_key
from anole.merge.foreign import read_models
from anole.record import Run
from anole.store.content import ShardContent
from anole.task import Task

_SHORTEST_KEY = 6
"""So many digits of a key tell which is meant; fewer may stand for many."""


@dataclass(frozen=True)
class Selection:
    """What a chosen run must be; of each kind, one of the named ones, or anything where none is named.

    Attributes:
        tasks: labels or keys of tasks; the first digits of a key will do.
        models: names of models that contain the run's task.
        targets: names of targets in models.yaml, or kinds of targets.
        presets: names of tuners.
        runs: keys of runs; the first digits will do.
        since: the run measured something then or later: a time in UTC, as ISO 8601 to the second and without a zone.
    """

    tasks: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    since: str | None = None


@dataclass(frozen=True)
class Usage:
    """That a model contains a task on a target, both by their names in models.yaml."""

    model: str
    target: str
    task_key: str


def usages_of(source: Path, manifests: Iterable[Path]) -> list[Usage]:
    """Returns what is known of models: by a database itself, and of a folder of shards by the project's manifests.

    Raises:
        StoreError: the database cannot be read.
        DocumentError: a manifest cannot be read.
    """
    if source.is_file():
        return [Usage(*each) for each in read_models(source)]
    read = (read_manifest(path) for path in manifests)
    return [Usage(manifest.model, manifest.target, task.key) for manifest in read for task in manifest.tasks]


class Chooser:
    """Tells of each run whether it is chosen, and at the end which names fitted nothing at all."""

    def __init__(self, selection: Selection, usages: Collection[Usage]) -> None:
        self.selection = selection
        self._usages = usages
        self._seen: dict[str, set[str]] = {"task": set(), "target": set(), "preset": set(), "run": set()}
        self._models: dict[str, set[str]] = {}
        self._targets: dict[str, set[str]] = {}
        for usage in usages:
            self._models.setdefault(usage.task_key, set()).add(usage.model)
            self._targets.setdefault(usage.task_key, set()).add(usage.target)

    def takes_run(self, run: Run, task: Task) -> bool:
        """Returns whether a run is chosen, as far as its head tells."""
        kind = str(task.target.get("kind"))
        own = {
            "task": {task.label, task.key},
            "target": {kind, *self._targets.get(task.key, ())},
            "preset": {run.preset},
            "run": {run.key},
        }
        for name, values in own.items():
            self._seen[name] |= values
        own["model"] = self._models.get(task.key, set())
        return all(_fits(wanted, own[name]) for name, wanted in self._wanted().items())

    def takes(self, content: ShardContent) -> bool:
        """Returns whether a run is chosen by what it measured."""
        since = self.selection.since
        if since is None:
            return True
        times = [trial.created_at for trial in content.trials] + [each.created_at for each in content.confirmations]
        return any(time[: len(since)] >= since for time in times)

    def refuse_unknown(self, source: Path) -> None:
        """Refuses names that no run of the source has.

        Raises:
            StoreError: the message names one, and what is there.
        """
        known: Mapping[str, set[str]] = {**self._seen, "model": {usage.model for usage in self._usages}}
        for name, wanted in self._wanted().items():
            for value in wanted:
                if not _fits((value,), known[name]):
                    words = sorted(word for word in known[name] if not is_key(word))
                    hint = f": {suggestion(value, words)}" if words else ""
                    if name == "model" and not words:
                        hint = "; there is no manifest here that tells a model's tasks, which a database does (--from)"
                    raise StoreError(f"{source}: found {name} {value!r}, which no run has{hint}")

    def _wanted(self) -> dict[str, tuple[str, ...]]:
        chosen = self.selection
        return {
            "task": chosen.tasks,
            "model": chosen.models,
            "target": chosen.targets,
            "preset": chosen.presets,
            "run": chosen.runs,
        }


def _fits(wanted: Collection[str], own: Collection[str]) -> bool:
    """Returns whether one of the wanted names is among a run's own, or begins one of its keys; or none is wanted."""
    if not wanted:
        return True
    keys = [value for value in own if is_key(value)]
    return any(
        value in own or (len(value) >= _SHORTEST_KEY and any(key.startswith(value) for key in keys)) for value in wanted
    )
