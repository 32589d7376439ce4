"""Merges shards, manifests, builds and evaluations into the database, which can always be made again from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from anole.documents.build import FILE, read_build
from anole.documents.evaluation import read_evaluation
from anole.merge.before import Before
from anole.merge.carrying import Carrier
from anole.merge.folding import fold_build, fold_evaluation, fold_manifest, naming
from anole.merge.guarded import Guarded, UnreadableError, opened
from anole.merge.merged import Changes, Merged
from anole.merge.replacement import HeldDatabase, held
from anole.merge.schema import create_tables, create_views, schema_sha256
from anole.merge.seal import Seal, read_seal, sources_sha256, write_seal
from anole.merge.shards import fold_shards
from anole.store.shard import shard_paths

__all__ = ["Merged", "merge_files"]


@dataclass(frozen=True)
class _Sources:
    """What is merged: the folder of shards, and the paths of the documents of each kind."""

    shards_dir: Path
    manifests: tuple[Path, ...]
    builds: tuple[Path, ...]
    evaluations: tuple[Path, ...]

    def sha256(self) -> str:
        builds = (folder / FILE for folder in self.builds)
        return sources_sha256([*shard_paths(self.shards_dir), *self.manifests, *builds, *self.evaluations])


def merge_files(
    shards_dir: Path,
    manifests: Iterable[Path],
    builds: Iterable[Path],
    evaluations: Iterable[Path],
    database_path: Path,
) -> Merged:
    """Merges shards and documents into the database, by writing a new file that then replaces it.

    The database then equals the files: a local shard and a document win over what the database held, also when they are
    shorter or older. Of two documents of one name that are merged together, as when several projects are merged into
    one database, the newer one wins; of projects that are merged one after another, the last one does. What has no file
    here stays, and so do the user's own tables, views and indexes. Merging again changes nothing.

    The hash of the database is kept beside it. A file with this hash is copied, and only the shards that changed are
    read. From any other file, such as one of an older version, a damaged one, or one that the user wrote into, the
    database is made anew: all files are merged, and what has no file here is carried over as far as it can be read and
    fits. If anything is missing then, the old file is kept aside.

    Args:
        shards_dir: the folder of all shards; it may be missing.
        manifests: paths of ``<model>/<target>.json``, with the task documents in ``../../tasks/<key>.json``.
        builds: folders of builds.
        evaluations: paths of ``<build>.json``.
        database_path: the database; created if missing.

    Raises:
        DocumentError: a document is missing or broken.
        StoreError: a shard cannot be read, is corrupt or was written by a newer Anole, or the database was, or is not
            one of Anole, or cannot be written. The database is then unchanged.
    """
    sources = _Sources(shards_dir, tuple(manifests), tuple(builds), tuple(evaluations))
    with held(database_path) as file:
        seal, sha256 = read_seal(file.path), sources.sha256()
        hashes = (file.sha256, schema_sha256())
        trusted = seal is not None and (seal.database_sha256, seal.schema_sha256) == hashes
        if trusted and seal is not None and seal.sources_sha256 == sha256:
            return replace(seal.merged, changed_runs=0)
        merged = _merge_into_copy(file, sources) if trusted else _merge_anew(file, sources)
        assert file.sha256 is not None, "the database was written"
        write_seal(file.path, Seal(file.sha256, schema_sha256(), sha256, replace(merged, replaced=())))
    return merged


def _merge_into_copy(file: HeldDatabase, sources: _Sources) -> Merged:
    """Merges into a copy of the file, which is as the last merge wrote it."""
    changes = Changes()
    with file.replaced() as db:
        before = Before(partial(_select, db))
        with db.atomic():
            # The user's own tables may refer to rows that are written anew.
            db.execute("pragma defer_foreign_keys = on")
            fold_shards(db, sources.shards_dir, before, changes, trusted=True)
            _fold_documents(db, sources, before, changes)
        create_views(db.conn)
        return _merged(db, changes)


def _select(db: Database, table: str, columns: Iterable[str], where: str, *parameters: str) -> list[tuple[Any, ...]]:
    return list(db.execute(f"select {', '.join(columns)} from {table} {where}", parameters).fetchall())


def _merge_anew(file: HeldDatabase, sources: _Sources) -> Merged:
    """Merges into an empty database, and carries over what only the file holds, if there is one."""
    changes, missing, carrier, before = Changes(), [], None, Before(lambda *_: ())
    with file.replaced(anew=True) as db, ExitStack() as stack:
        create_tables(db.conn)
        try:
            if file.sha256 is not None:
                old = stack.enter_context(opened(file.path))
                _refuse(old)
                carrier, before = Carrier(db, old), Before(old.select)
        except UnreadableError as error:
            missing.append(str(error).removeprefix(f"{file.path}: "))
        with db.atomic():
            fold_shards(db, sources.shards_dir, before, changes, trusted=False)
            if carrier is not None:
                carrier.carry_runs(before)
            _fold_documents(db, sources, before, changes)
            if carrier is not None:
                carrier.carry_documents(changes)
        create_views(db.conn)
        if carrier is not None:
            carrier.carry_own()
            missing += carrier.missing
        if missing:
            said = f"was made anew from shards and documents; the old file was kept as {file.kept_aside().name}"
            changes.replaced += [f"{file.path}: {sentence}" for sentence in (said, *missing)]
        return _merged(db, changes)


def _refuse(old: Guarded) -> None:
    """Refuses a database that a merge must not replace."""
    old.refuse_newer("update Anole, or move the file away and merge again")
    old.refuse_others()


def _fold_documents(db: Database, sources: _Sources, before: Before, changes: Changes) -> None:
    for path in sources.manifests:
        with naming(path):
            fold_manifest(db, path)
    for folder in _newest(sources.builds, _build, changes):
        with naming(folder):
            fold_build(db, folder, before, changes)
    for path in _newest(sources.evaluations, _evaluation, changes):
        with naming(path):
            fold_evaluation(db, path, before, changes)


def _newest(paths: Iterable[Path], read: Callable[[Path], tuple[str, str]], changes: Changes) -> list[Path]:
    """Returns the newest of the documents of each name; `read` tells the name, and when the document was made."""
    newest: dict[str, tuple[str, Path]] = {}
    for path in paths:
        name, created_at = read(path)
        older = min(newest.get(name, (created_at, path)), (created_at, path))
        newest[name] = max(newest.get(name, older), (created_at, path))
        if older != newest[name]:
            changes.ignored.append(f"{older[1]}: is not merged: {newest[name][1]} has the same name and is newer")
    return [path for _, path in newest.values()]


def _build(folder: Path) -> tuple[str, str]:
    build = read_build(folder)
    return build.name, build.created_at


def _evaluation(path: Path) -> tuple[str, str]:
    evaluation = read_evaluation(path)
    return evaluation.build, evaluation.created_at


def _merged(db: Database, changes: Changes) -> Merged:
    runs = {key: sealed for key, sealed in db.conn.execute("select key, sealed from run")}
    here = changes.shards
    return Merged(
        changed_runs=len(changes.runs),
        runs=len(runs),
        trials=db.table("trial").count,
        runs_without_shard=len(runs.keys() - here),
        unsealed_runs=sum(not sealed for key, sealed in runs.items() if key in here),
        ignored=tuple(changes.ignored),
        replaced=tuple(changes.replaced),
    )
