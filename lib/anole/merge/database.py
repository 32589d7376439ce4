"""Merges shards, manifests, builds and evaluations into the database, which can always be rebuilt from them."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlite_utils import Database

from anole.errors import StoreError
from anole.files import read_bytes
from anole.merge.folding import Recording, fold_build, fold_evaluation, fold_manifest, fold_run, recordings
from anole.merge.migrations import create_views, migrations, unknown_migrations
from anole.merge.replacement import replaced
from anole.store.content import parse_shard
from anole.store.lines import whole_lines


@dataclass(frozen=True)
class Merged:
    """The result of a merge.

    Attributes:
        changed_runs: number of runs that were new or had grown.
        runs, trials: numbers of runs and trials that the database holds now.
    """

    changed_runs: int
    runs: int
    trials: int


def merge_files(
    shards_dir: Path,
    manifests: Iterable[Path],
    builds: Iterable[Path],
    evaluations: Iterable[Path],
    database_path: Path,
) -> Merged:
    """Merges shards and documents into the database, in one transaction on a copy that then replaces it.

    Merging is idempotent, and neither the order nor the partition of the sources matters: the database loses
    nothing, the longer state of a run's shard wins, and so does the newer build and evaluation of a name. The
    user's own tables, views and indexes are not changed.

    Args:
        shards_dir: the folder of all shards; it may be missing.
        manifests: paths of ``<model>/<target>.json``, with the task documents in ``../../tasks/<key>.json``.
        builds: folders of builds.
        evaluations: paths of ``<build>.json``.
        database_path: the database; created if missing.

    Raises:
        DocumentError: a document is missing or broken.
        StoreError: a shard cannot be read, is corrupt or was written by a newer Anole, or the database
            cannot be written. The database is then unchanged.
    """
    documents = [
        *((fold_manifest, path) for path in manifests),
        *((fold_build, folder) for folder in builds),
        *((fold_evaluation, path) for path in evaluations),
    ]
    with replaced(database_path) as db:
        _refuse_newer(db, database_path)
        with db.atomic():
            db.execute("pragma defer_foreign_keys = on")
            migrations.apply(db)
            changed_runs = _fold_shards(db, shards_dir)
            for fold, path in documents:
                with _naming(path):
                    fold(db, path)
            create_views(db)
        return Merged(changed_runs, db.table("run").count, db.table("trial").count)


def _refuse_newer(db: Database, database_path: Path) -> None:
    unknown = unknown_migrations(db)
    if unknown:
        raise StoreError(
            f"{database_path}: was written by a newer Anole ({', '.join(unknown)} is not known here); update "
            "Anole, or move the file away and merge again"
        )


def _fold_shards(db: Database, shards_dir: Path) -> int:
    """Merges every shard that holds more than the database does; returns the number of such shards."""
    known = recordings(db)
    merged = {recording.shard_sha256 for recording in known.values()}
    changed = set()
    for path in _shard_paths(shards_dir):
        data = whole_lines(read_bytes(path))
        digest = hashlib.sha256(data).hexdigest()
        content = None if digest in merged else parse_shard(path, data)
        if content is None:
            continue
        recording = Recording(content.started_at, len(data), digest)
        key = content.run.key
        if key not in known or recording > known[key]:
            with _naming(path):
                fold_run(db, content, recording)
            known[key] = recording
            changed.add(key)
    return len(changed)


def _shard_paths(shards_dir: Path) -> Iterator[Path]:
    paths = sorted(shards_dir.glob("*/*.jsonl"))
    return (path for path in paths if not path.name.startswith("."))


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Names the file in the error if its rows violate the tables' constraints."""
    try:
        yield
    except (sqlite3.IntegrityError, OverflowError, UnicodeError) as error:
        raise StoreError(f"{path}: does not fit into the database: {error}") from error
