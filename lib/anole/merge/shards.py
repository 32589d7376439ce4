"""Merges the shards of a folder: the local shard of a run always wins, and of other copies the newest one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from sqlite_utils import Database

from anole.errors import StoreError
from anole.files import read_bytes
from anole.merge.merge_log import MergeLog, Recording, Snapshot
from anole.merge.upsert import fold_run, naming
from anole.store.content import ShardContent, parse_shard
from anole.store.lines import complete_lines
from anole.store.shard import is_copy, named_run, shard_paths


class RunState(NamedTuple):
    """A state of a run that a file holds; its content is not read if the database holds this very state."""

    key: str
    recording: Recording
    path: Path
    data: bytes
    content: ShardContent | None

    @classmethod
    def of(cls, path: Path, content: ShardContent, data: bytes, sha256: str) -> Self:
        """Return the state that the whole lines of a file hold, given their hash."""
        return cls(content.run.key, Recording(content.started_at, len(data), sha256), path, data, content)


def states_of(folder: Path, read: Callable[[Path], RunState | None]) -> Iterator[list[RunState]]:
    """Yield what a folder holds of each run: its local shard, or else all copies; `read` may pass over some.

    ``<task>/<run>.jsonl`` is the local shard, to which a tuner appends. Any other name is that of a copy, such as
    ``<run>.<digest>.jsonl`` of an import. Copies come after all local shards, and count only where there is none.
    """
    copies: dict[str, list[RunState]] = {}
    for path in sorted(shard_paths(folder), key=is_copy):
        state = read(path)
        if state is not None and is_copy(path):
            copies.setdefault(state.key, []).append(state)
        elif state is not None:
            yield [state]
    yield from copies.values()


def newest_of(states: Sequence[RunState]) -> RunState:
    """Return the state with the greatest `Recording`."""
    return max(states, key=lambda state: (state.recording, state.path))


def fold_shards(db: Database, shards_dir: Path, before: Snapshot, changes: MergeLog, *, trusted: bool) -> None:
    """Merge all shards of a folder, which may be missing.

    The database then holds the state of the local shard, also if it is shorter or older than what it held. Without one,
    of the copies and of the database the greatest `Recording` wins. If the database can be trusted to hold what the
    last merge wrote, a shard with the hash that was recorded then is not read again.
    """
    known = {state.shard_sha256: (key, state) for key, state in before.recordings.items()} if trusted else {}

    # All local shards are folded before the first copy is read.
    def read(path: Path) -> RunState | None:
        has_local = is_copy(path) and named_run(path) in changes.shards
        state = None if has_local else _read(path, known)
        if has_local or (state is not None and is_copy(path) and state.key in changes.shards):
            changes.ignored.append(f"{path}: is not merged: there is a local shard of its run")
            return None
        return state

    for states in states_of(shards_dir, read):
        newest = newest_of(states)
        held = before.recordings.get(newest.key)
        if is_copy(newest.path) and held is not None and held > newest.recording:
            changes.ignored.append(f"{newest.path}: is not merged: the database holds a newer state of its run")
            changes.shards.add(newest.key)
        else:
            _fold(db, newest, before, changes)
        for state in states:
            if state.recording != newest.recording:
                changes.ignored.append(f"{state.path}: is not merged: {newest.path.name} is a newer state of its run")


def _read(path: Path, known: Mapping[str, tuple[str, Recording]]) -> RunState | None:
    """Read a shard, but not what it holds if that is known; returns None if it has no line yet."""
    data = complete_lines(read_bytes(path))
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 in known:
        return RunState(*known[sha256], path, data, None)
    content = parse_shard(path, data)
    if content is None:
        return None
    if not is_copy(path) and (content.run.key, content.run.task_key) != (path.stem, path.parent.name):
        raise StoreError(f"{path}: holds the run {content.run.key}, not the one in its name; move the file away")
    return RunState.of(path, content, data, sha256)


def _fold(db: Database, state: RunState, before: Snapshot, changes: MergeLog) -> None:
    key, content, path = state.key, state.content, state.path
    changes.shards.add(key)
    if content is None:
        return
    known = before.recordings.get(key)
    if known is None or known.shard_sha256 != state.recording.shard_sha256:
        changes.runs.add(key)
    if known is not None and key in changes.runs and (n_lost := before.n_lost(content)):
        changes.replaced.append(
            f"{path}: {n_lost} trials that the database held are not in this shard; it holds what the shard does"
        )
    with naming(path):
        fold_run(db, content, state.recording)
