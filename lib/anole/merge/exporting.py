"""Exports records to other machines: chosen runs become a folder of shards that can be imported there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from anole.documents.document import read_document, write_document
from anole.errors import DocumentError, StoreError
from anole.files import make_folder, replace_durably
from anole.host.machine import host_facts
from anole.keys import Time
from anole.merge.exchange import contents
from anole.merge.selection import Chooser, Selection, usages_of
from anole.merge.shards import RunState, newest_of, states_of
from anole.record import utc_now
from anole.store.content import ShardContent, read_head, read_stored
from anole.store.shard import is_copy, shard_path

_ORIGIN = "exported.json"
"""The name of the file in an exported folder that says where it comes from."""

_DATABASE = ".sqlite"


@dataclass(frozen=True)
class Exported:
    """What was exported: numbers of runs, of their tasks and of their trials."""

    runs: int
    tasks: int
    trials: int


@dataclass(frozen=True)
class ExportOrigin:
    """When and on which machine a folder was exported, and from which folder or database.

    The machine that measured is named by the head of each run.
    """

    exported_at: Time
    machine: str
    source: str


def export_records(source: Path, destination: Path, selection: Selection, manifests: Iterable[Path] = ()) -> Exported:
    """Write the chosen runs of a folder of shards or of a database, each whole, at once and durably.

    A shard is copied byte for byte. Of a run that has no shard of its own but copies of other machines', the one is
    taken that a merge would take. The manifests tell which models a task is in, where the source does not.

    Raises:
        StoreError: the destination is no new folder or cannot be written, the source cannot be read, or nothing is
            chosen.
    """
    if destination.suffix == _DATABASE:
        raise StoreError(f"{destination}: records are exported as a folder of shards; give the name of a new folder")
    if destination.exists() and not (destination.is_dir() and not any(destination.iterdir())):
        raise StoreError(f"{destination}: is already there; give the name of a new folder")
    if not source.exists():
        raise StoreError(f"{source}: there is no such database or folder of shards")
    chooser = Chooser(selection, usages_of(source, manifests) if selection.models or selection.targets else ())
    try:
        make_folder(destination.absolute().parent)
        with TemporaryDirectory(prefix=f".{destination.name}.", dir=destination.absolute().parent) as temporary:
            folder = Path(temporary, "shards")
            done = _written(_chosen(source, chooser), folder)
            chooser.refuse_unknown(source)
            if not done.runs:
                raise StoreError(f"{source}: no run is chosen by all of these conditions together")
            name = str(host_facts()["name"])
            write_document(folder / _ORIGIN, ExportOrigin(utc_now(), name, str(source.resolve())))
            replace_durably(folder, destination)
    except OSError as error:
        raise StoreError(f"{destination}: cannot be written: {error.strerror}") from error
    return done


def exported_from(source: Path) -> str:
    """Return a remark on where an exported folder comes from; nothing of another source."""
    try:
        origin = read_document(source / _ORIGIN, ExportOrigin, "export-records")
    except DocumentError:
        return ""
    return f" (exported on {origin.machine} at {origin.exported_at})"


def _written(chosen: Iterable[tuple[ShardContent, bytes]], folder: Path) -> Exported:
    tasks, runs, trials = set(), 0, 0
    for content, data in chosen:
        path = shard_path(folder, content.run)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        tasks.add(content.task.key)
        runs, trials = runs + 1, trials + len(content.trials)
    return Exported(runs, len(tasks), trials)


def _chosen(source: Path, chooser: Chooser) -> Iterator[tuple[ShardContent, bytes]]:
    found = _of_folder(source, chooser) if source.is_dir() else contents(source)
    return (
        (content, data)
        for content, data in found
        if chooser.takes_run(content.run, content.task) and chooser.takes(content)
    )


def _of_folder(folder: Path, chooser: Chooser) -> Iterator[tuple[ShardContent, bytes]]:
    """Yield one state of each run that is chosen by its head: its own shard or, without one, its newest copy."""
    own: set[str] = set()

    def read(path: Path) -> RunState | None:
        head = read_head(path)
        if head is None or head[0].key in own or not chooser.takes_run(*head):
            return None
        if not is_copy(path):
            own.add(head[0].key)
        stored = read_stored(path)
        assert stored is not None, "its head was read"
        return RunState.of(path, *stored, sha256(stored[1]).hexdigest())

    for newest in map(newest_of, states_of(folder, read)):
        assert newest.content is not None, "all that is chosen was read"
        yield newest.content, newest.data
