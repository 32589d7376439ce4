"""Select runs in a folder of shards or a database by task, model, target, preset, key or time."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from anole.documents.manifest import read_manifest
from anole.errors import StoreError, suggestion
from anole.keys import is_key
from anole.merge.exchange.database_runs import read_models
from anole.record import Confirmation, Run, Trial
from anole.store.content import ShardContent
from anole.task import Task

_MIN_KEY_DIGITS = 6
"""Minimum length of an abbreviated key; shorter prefixes may be ambiguous."""


@dataclass(frozen=True)
class Selection:
    """Conditions that a run must satisfy: for each kind of names that is not empty, it must match one of the names.

    Attributes:
        tasks: labels or keys; keys of tasks and runs may be abbreviated to their first digits.
        models: names of models that contain the run's task.
        targets: names in models.yaml, or kinds of targets.
        since: the run must have a measurement at or after this time, in UTC, as ISO 8601 to the second without a zone.
    """

    tasks: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    since: str | None = None


Usage = tuple[str, str, str]
"""The names of a model and a target in models.yaml, and the key of a task of the model on the target."""


def usages_of(source: Path, manifests: Iterable[Path]) -> list[Usage]:
    """Return the usages of tasks that a database lists or, for a folder of shards, the project's manifests list."""
    if source.is_file():
        return read_models(source)
    documents = (read_manifest(path) for path in manifests)
    return [(manifest.model, manifest.target, task.key) for manifest in documents for task in manifest.tasks]


class Chooser:
    """A filter of runs, which also reports names that match no run."""

    def __init__(self, selection: Selection, usages: Collection[Usage]) -> None:
        self._wanted_names = {
            "task": selection.tasks,
            "model": selection.models,
            "target": selection.targets,
            "preset": selection.presets,
            "run": selection.runs,
        }
        self._since = selection.since
        self._usages: dict[str, list[tuple[str, str]]] = {}
        for model, target, key in usages:
            self._usages.setdefault(key, []).append((model, target))
        self._existing_names: dict[str, set[str]] = {kind: set() for kind in self._wanted_names}
        self._existing_names["model"] = {model for model, _, _ in usages}

    def selects_head(self, run: Run, task: Task) -> bool:
        """Whether a run is selected by its head, regardless of the times of its measurements."""
        usages = self._usages.get(task.key, ())
        run_names = {
            "task": {task.label, task.key},
            "model": {model for model, _ in usages},
            "target": {str(task.target.get("kind")), *(target for _, target in usages)},
            "preset": {run.preset},
            "run": {run.key},
        }
        for kind, names in run_names.items():
            self._existing_names[kind] |= names
        return all(not wanted or _matches(wanted, run_names[kind]) for kind, wanted in self._wanted_names.items())

    def takes(self, content: ShardContent) -> bool:
        """Whether a run is selected by the times of its measurements."""
        since = self._since
        records: tuple[Trial | Confirmation, ...] = (*content.trials, *content.confirmations)
        return since is None or any(record.created_at[: len(since)] >= since for record in records)

    def check_names_matched(self, source: Path) -> None:
        """Raise StoreError if a name matches no run of the source; the message suggests existing names."""
        for kind, wanted in self._wanted_names.items():
            for name in wanted:
                if not _matches((name,), self._existing_names[kind]):
                    names = sorted(name for name in self._existing_names[kind] if not is_key(name))
                    hint = f": {suggestion(name, names)}" if names else ""
                    if kind == "model" and not names:
                        hint = "; no manifest or database here lists models' tasks; use a database that does (--from)"
                    raise StoreError(f"{source}: {kind} {name!r} matches no run{hint}")


def _matches(wanted: Collection[str], names: Collection[str]) -> bool:
    """Whether one of the wanted names equals one of a run's names, or is a prefix of one of its keys."""
    keys = [name for name in names if is_key(name)]
    return any(
        prefix in names or (len(prefix) >= _MIN_KEY_DIGITS and any(key.startswith(prefix) for key in keys))
        for prefix in wanted
    )
