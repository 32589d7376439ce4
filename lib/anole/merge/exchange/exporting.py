"""Export records for other machines: write the selected runs as a folder of shards to import there."""

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
from anole.merge.exchange.importing import contents
from anole.merge.exchange.selection import Chooser, Selection, usages_of
from anole.merge.shards import RunState, newest_state, run_states
from anole.record import utc_now
from anole.store.content import ShardContent, read_head, read_stored
from anole.store.shard import is_copy, shard_path

_ORIGIN = "exported.json"
"""Name of the file in an exported folder that records its origin."""

_DATABASE_SUFFIX = ".sqlite"


@dataclass(frozen=True)
class Exported:
    """The numbers of exported runs, tasks and trials."""

    runs: int
    tasks: int
    trials: int


@dataclass(frozen=True)
class ExportOrigin:
    """The origin of an exported folder: the time, the machine, and the source folder or database.

    The machine that measured a run is stored in the run itself.
    """

    exported_at: Time
    machine: str
    source: str


def export_records(source: Path, destination: Path, selection: Selection, manifests: Iterable[Path] = ()) -> Exported:
    """Write the selected runs, from a folder of shards or a database, to a new folder, atomically and durably.

    Complete lines are copied byte for byte. If a run has only copies, the copy that a merge would prefer is exported.
    The manifests list the models of each task if the source does not.

    Raises:
        StoreError: the destination is not new or empty, or not writable; the source is not readable; or no run matches.
    """
    if destination.suffix == _DATABASE_SUFFIX:
        raise StoreError(f"{destination}: records are exported as a folder of shards; give the name of a new folder")
    if destination.exists() and not (destination.is_dir() and not any(destination.iterdir())):
        raise StoreError(f"{destination}: already exists; give the name of a new folder")
    if not source.exists():
        raise StoreError(f"{source}: there is no such database or folder of shards")
    chooser = Chooser(selection, usages_of(source, manifests) if selection.models or selection.targets else ())
    try:
        make_folder(destination.absolute().parent)
        with TemporaryDirectory(prefix=f".{destination.name}.", dir=destination.absolute().parent) as temporary:
            folder = Path(temporary, "shards")
            counts = _write_shards(_selected_runs(source, chooser), folder)
            chooser.check_names_matched(source)
            if not counts.runs:
                raise StoreError(f"{source}: no run satisfies all conditions")
            name = str(host_facts()["name"])
            write_document(folder / _ORIGIN, ExportOrigin(utc_now(), name, str(source.resolve())))
            replace_durably(folder, destination)
    except OSError as error:
        raise StoreError(f"{destination}: cannot be written: {error.strerror}") from error
    return counts


def describe_origin(source: Path) -> str:
    """Return a remark on the origin of an exported folder, or an empty text for other sources."""
    try:
        origin = read_document(source / _ORIGIN, ExportOrigin, "export-records")
    except DocumentError:
        return ""
    return f" (exported on {origin.machine} at {origin.exported_at})"


def _write_shards(shards: Iterable[tuple[ShardContent, bytes]], folder: Path) -> Exported:
    tasks, runs, trials = set(), 0, 0
    for content, data in shards:
        path = shard_path(folder, content.run)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        tasks.add(content.task.key)
        runs, trials = runs + 1, trials + len(content.trials)
    return Exported(runs, len(tasks), trials)


def _selected_runs(source: Path, chooser: Chooser) -> Iterator[tuple[ShardContent, bytes]]:
    candidates = _selected_runs_in_folder(source, chooser) if source.is_dir() else contents(source)
    return (
        (content, data)
        for content, data in candidates
        if chooser.selects_head(content.run, content.task) and chooser.takes(content)
    )


def _selected_runs_in_folder(folder: Path, chooser: Chooser) -> Iterator[tuple[ShardContent, bytes]]:
    """Yield one state of each run whose head is selected: its shard or, if there is none, its newest copy."""
    runs_with_shard: set[str] = set()

    def read(path: Path) -> RunState | None:
        head = read_head(path)
        if head is None or head[0].key in runs_with_shard or not chooser.selects_head(*head):
            return None
        if not is_copy(path):
            runs_with_shard.add(head[0].key)
        stored = read_stored(path)
        assert stored is not None, "its head was read"
        return RunState.of(path, *stored, sha256(stored[1]).hexdigest())

    for newest in map(newest_state, run_states(folder, read)):
        assert newest.content is not None, "selected states were read"
        yield newest.content, newest.data
