"""Merge the shards of a folder: the local shard of each run or, if there is none, its newest copy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from sqlite_utils import Database

from anole.errors import StoreError
from anole.files import read_bytes
from anole.merge.merge_log import MergeLog, Recording, Snapshot
from anole.merge.upsert import fold_run, name_file_in_errors
from anole.store.content import ShardContent, parse_shard
from anole.store.lines import complete_lines
from anole.store.shard import is_copy, run_key_in_name, shard_paths


class RunState(NamedTuple):
    """The state of a run in a file; the content is None if the database already has this state."""

    key: str
    recording: Recording
    path: Path
    data: bytes
    content: ShardContent | None

    @classmethod
    def of(cls, path: Path, content: ShardContent, data: bytes, sha256: str) -> Self:
        """Return the state of a run, given a file's complete lines and their hash."""
        return cls(content.run.key, Recording(content.started_at, len(data), sha256), path, data, content)


def run_states(folder: Path, read: Callable[[Path], RunState | None]) -> Iterator[list[RunState]]:
    """Yield the states of each run in a folder: its local shard, or its copies; `read` returns None to skip a file.

    ``<task>/<run>.jsonl`` is the local shard, to which a tuner appends. Files with other names are copies, such as
    ``<run>.<digest>.jsonl`` from an import. They are read after all local shards; `read` skips them if there is one.
    """
    copies: dict[str, list[RunState]] = {}
    for path in sorted(shard_paths(folder), key=is_copy):
        state = read(path)
        if state is not None and is_copy(path):
            copies.setdefault(state.key, []).append(state)
        elif state is not None:
            yield [state]
    yield from copies.values()


def newest_state(states: Sequence[RunState]) -> RunState:
    """Return the state with the greatest `Recording`."""
    return max(states, key=lambda state: (state.recording, state.path))


def fold_shards(db: Database, shards_dir: Path, snapshot: Snapshot, log: MergeLog, *, trusted: bool) -> None:
    """Merge all shards of a folder, which may be missing.

    A local shard replaces the run in the database, even if it is shorter or older. Without a local shard, the greatest
    `Recording` among the copies and the database wins. If the database is known to be unchanged since the last merge
    (`trusted`), shards with the hash that it recorded are not parsed again.
    """
    known = {state.shard_sha256: (key, state) for key, state in snapshot.recordings.items()} if trusted else {}

    # All local shards are merged before the first copy is read.
    def read(path: Path) -> RunState | None:
        has_local = is_copy(path) and run_key_in_name(path) in log.shards
        state = None if has_local else _read(path, known)
        if has_local or (state is not None and is_copy(path) and state.key in log.shards):
            log.ignored.append(f"{path}: is not merged: there is a local shard of its run")
            return None
        return state

    for states in run_states(shards_dir, read):
        newest = newest_state(states)
        stored = snapshot.recordings.get(newest.key)
        if is_copy(newest.path) and stored is not None and stored > newest.recording:
            log.ignored.append(f"{newest.path}: is not merged: the database has a newer state of its run")
            log.shards.add(newest.key)
        else:
            _fold(db, newest, snapshot, log)
        for state in states:
            if state.recording != newest.recording:
                log.ignored.append(f"{state.path}: is not merged: {newest.path.name} is a newer state of its run")


def _read(path: Path, known: Mapping[str, tuple[str, Recording]]) -> RunState | None:
    """Read a shard, but do not parse it if its hash is known; return None if it has no complete line yet."""
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


def _fold(db: Database, state: RunState, snapshot: Snapshot, log: MergeLog) -> None:
    key, content, path = state.key, state.content, state.path
    log.shards.add(key)
    if content is None:
        return
    known = snapshot.recordings.get(key)
    if known is None or known.shard_sha256 != state.recording.shard_sha256:
        log.runs.add(key)
    if known is not None and key in log.runs and (n_lost := snapshot.n_lost(content)):
        log.replaced.append(
            f"{path}: {n_lost} trials that the database had are not in this shard; the database now matches the shard"
        )
    with name_file_in_errors(path):
        fold_run(db, content, state.recording)
