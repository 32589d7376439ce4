"""Merges the shards of a folder: the local shard of a run always wins, and of other copies the newest one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from sqlite_utils import Database

from anole.errors import StoreError
from anole.files import read_bytes
from anole.merge.before import Before, Recording
from anole.merge.folding import fold_run, naming
from anole.merge.merged import Changes
from anole.store.content import ShardContent, parse_shard
from anole.store.lines import whole_lines
from anole.store.shard import is_copy, named_run, shard_paths


def fold_shards(db: Database, shards_dir: Path, before: Before, changes: Changes, *, trusted: bool) -> None:
    """Merges all shards of a folder.

    ``<task>/<run>.jsonl`` is the local shard, to which a tuner appends. The database then holds its state, also if it
    is shorter or older than what it held. Any other name is that of a copy, such as ``<run>.<digest>.jsonl`` of an
    import. Copies count only where there is no local shard; of them and of the database the greatest `Recording` wins.

    Args:
        db: the database.
        shards_dir: the folder; it may be missing.
        before: what it held until now.
        changes: is told what is written, replaced and ignored.
        trusted: whether the database holds what it held, as the last merge wrote it, so that a shard with the hash
            that was recorded then need not be read again.

    Raises:
        StoreError: a shard cannot be read, is corrupt, or is not of the run in its name.
    """
    paths = list(shard_paths(shards_dir))
    for path in paths:
        if not is_copy(path):
            _fold_local(db, path, before, changes, trusted=trusted)
    _fold_copies(db, filter(is_copy, paths), before, changes, trusted=trusted)


def _fold_local(db: Database, path: Path, before: Before, changes: Changes, *, trusted: bool) -> None:
    data, sha256 = _read(path)
    key = path.stem
    known = before.recordings.get(key)
    if not data:
        return
    if not trusted or known is None or known.shard_sha256 != sha256:
        content = _parsed(path, data)
        if (content.run.key, content.run.task_key) != (key, path.parent.name):
            raise StoreError(f"{path}: holds the run {content.run.key}, not the one in its name; move the file away")
        _fold(db, content, Recording(content.started_at, len(data), sha256), path, before, changes)
    changes.shards.add(key)


def _fold_copies(db: Database, paths: Iterable[Path], before: Before, changes: Changes, *, trusted: bool) -> None:
    known = before.recordings
    by_digest = {recording.shard_sha256: (key, recording) for key, recording in known.items()} if trusted else {}
    copies: dict[str, list[tuple[Recording, Path]]] = {}
    for path in paths:
        if named_run(path) in changes.shards:
            _ignore_copy(path, changes)
            continue
        data, sha256 = _read(path)
        if sha256 in by_digest:
            key, recording = by_digest[sha256]
        elif data:
            content = _parsed(path, data)
            key, recording = content.run.key, Recording(content.started_at, len(data), sha256)
        else:
            continue
        if key in changes.shards:
            _ignore_copy(path, changes)
        else:
            copies.setdefault(key, []).append((recording, path))
    for key, states in copies.items():
        (newest, path), held = max(states), known.get(key)
        changes.shards.add(key)
        if held is not None and held > newest:
            changes.ignored.append(f"{path}: is not merged: the database holds a newer state of its run")
        elif not trusted or held != newest:
            _fold(db, _parsed(path, _read(path)[0]), newest, path, before, changes)
        for recording, other in states:
            if recording != newest:
                changes.ignored.append(f"{other}: is not merged: {path.name} is a newer state of its run")


def _fold(
    db: Database, content: ShardContent, recording: Recording, path: Path, before: Before, changes: Changes
) -> None:
    key, known = content.run.key, before.recordings.get(content.run.key)
    if known is None or known.shard_sha256 != recording.shard_sha256:
        changes.runs.add(key)
    if known is not None and key in changes.runs:
        times = tuple(trial.created_at for trial in content.trials)
        n_lost = before.n_lost(key, content.configs, times, anew=known.started_at != recording.started_at)
        if n_lost:
            changes.replaced.append(
                f"{path}: {n_lost} trials that the database held are not in this shard; it holds what the shard does"
            )
    with naming(path):
        fold_run(db, content, recording)


def _ignore_copy(path: Path, changes: Changes) -> None:
    changes.ignored.append(f"{path}: is not merged: there is a local shard of its run")


def _parsed(path: Path, data: bytes) -> ShardContent:
    content = parse_shard(path, data)
    assert content is not None, "there are lines"
    return content


def _read(path: Path) -> tuple[bytes, str]:
    data = whole_lines(read_bytes(path))
    return data, hashlib.sha256(data).hexdigest()
