"""Which runs are chosen from a folder of shards or from a database: by task, model, target, preset, run or time."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from anole.documents.manifest import read_manifest
from anole.errors import StoreError, suggestion
from anole.keys import is_key
from anole.merge.import_database import read_models
from anole.record import Confirmation, Run, Trial
from anole.store.content import ShardContent
from anole.task import Task

_SHORTEST_KEY = 6
"""So many digits of a key tell which is meant; fewer may stand for many."""


@dataclass(frozen=True)
class Selection:
    """What a chosen run must be; of each kind, one of the named ones, or anything where none is named.

    Attributes:
        tasks: labels or keys; of a key, here and of runs, the first digits will do.
        models: names of models that contain the run's task.
        targets: names in models.yaml, or kinds of targets.
        since: the run measured something then or later: a time in UTC, as ISO 8601 to the second and without a zone.
    """

    tasks: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    since: str | None = None


Usage = tuple[str, str, str]
"""A model and a target, by their names in models.yaml, and the key of a task that they contain."""


def usages_of(source: Path, manifests: Iterable[Path]) -> list[Usage]:
    """Return what is known of models: by a database itself, and of a folder of shards by the project's manifests."""
    if source.is_file():
        return read_models(source)
    read = (read_manifest(path) for path in manifests)
    return [(manifest.model, manifest.target, task.key) for manifest in read for task in manifest.tasks]


class Chooser:
    """Tells of each run whether it is chosen, and at the end which names fitted nothing at all."""

    def __init__(self, selection: Selection, usages: Collection[Usage]) -> None:
        self._wanted = {
            "task": selection.tasks,
            "model": selection.models,
            "target": selection.targets,
            "preset": selection.presets,
            "run": selection.runs,
        }
        self._since = selection.since
        self._places: dict[str, list[tuple[str, str]]] = {}
        for model, target, key in usages:
            self._places.setdefault(key, []).append((model, target))
        self._seen: dict[str, set[str]] = {name: set() for name in self._wanted}
        self._seen["model"] = {model for model, _, _ in usages}

    def takes_run(self, run: Run, task: Task) -> bool:
        """Whether a run is chosen, as far as its head tells."""
        places = self._places.get(task.key, ())
        own = {
            "task": {task.label, task.key},
            "model": {model for model, _ in places},
            "target": {str(task.target.get("kind")), *(target for _, target in places)},
            "preset": {run.preset},
            "run": {run.key},
        }
        for name, values in own.items():
            self._seen[name] |= values
        return all(not wanted or _fits(wanted, own[name]) for name, wanted in self._wanted.items())

    def takes(self, content: ShardContent) -> bool:
        """Whether a run is chosen by what it measured."""
        since = self._since
        measured: tuple[Trial | Confirmation, ...] = (*content.trials, *content.confirmations)
        return since is None or any(each.created_at[: len(since)] >= since for each in measured)

    def refuse_unknown(self, source: Path) -> None:
        """Refuse names that no run of the source has; the StoreError names one, and what is there."""
        for name, wanted in self._wanted.items():
            for value in wanted:
                if not _fits((value,), self._seen[name]):
                    words = sorted(word for word in self._seen[name] if not is_key(word))
                    hint = f": {suggestion(value, words)}" if words else ""
                    if name == "model" and not words:
                        hint = "; there is no manifest here that tells a model's tasks, which a database does (--from)"
                    raise StoreError(f"{source}: found {name} {value!r}, which no run has{hint}")


def _fits(wanted: Collection[str], own: Collection[str]) -> bool:
    """Whether one of the wanted names is among a run's own, or begins one of its keys."""
    keys = [value for value in own if is_key(value)]
    return any(
        value in own or (len(value) >= _SHORTEST_KEY and any(key.startswith(value) for key in keys)) for value in wanted
    )
