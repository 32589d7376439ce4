"""Merge shards, manifests, builds and evaluations into the database, which can be rebuilt if all have local files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from sqlite_utils import Database

from anole.documents.build import FILE, read_build
from anole.documents.document import read_document, write_document
from anole.documents.evaluation import read_evaluation
from anole.errors import DocumentError
from anole.files import read_bytes
from anole.merge.keep_user_data import UserDataCopy
from anole.merge.merge_log import Merged, MergeLog, Snapshot
from anole.merge.replacement import HeldDatabase, hold_database
from anole.merge.schema import create_tables, create_views, schema_sha256, views_sha256
from anole.merge.shards import fold_shards
from anole.merge.untrusted_database import UnreadableError, UntrustedDatabase, open_database
from anole.merge.upsert import fold_build, fold_evaluation, fold_manifest, name_file_in_errors
from anole.store.shard import shard_paths

__all__ = ["Merged", "merge_files"]


@dataclass(frozen=True)
class Seal:
    """Hashes of the database file, of its table definitions, and of all merged files with the views.

    A database with a different hash was changed by another program or by a fault. `merged` has an empty `replaced`.
    """

    database_sha256: str
    schema_sha256: str
    sources_sha256: str
    merged: Merged


def seal_path(database: Path) -> Path:
    """Return the path of a database's seal."""
    return database.with_name(f"{database.name}.seal")


@dataclass(frozen=True)
class _Sources:
    """The files to merge: the folder of shards, and the paths of documents by kind."""

    shards_dir: Path
    manifests: tuple[Path, ...]
    builds: tuple[Path, ...]
    evaluations: tuple[Path, ...]

    def sha256(self) -> str:
        """Return one hash over the views and the names and contents of all files."""
        digest = hashlib.sha256(views_sha256().encode())
        builds = (folder / FILE for folder in self.builds)
        for path in (*shard_paths(self.shards_dir), *self.manifests, *builds, *self.evaluations):
            content = hashlib.sha256(read_bytes(path)).hexdigest() if path.exists() else "missing"
            digest.update(f"{os.path.abspath(path)}\n{content}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()


def merge_files(
    shards_dir: Path,
    manifests: Iterable[Path],
    builds: Iterable[Path],
    evaluations: Iterable[Path],
    database_path: Path,
) -> Merged:
    """Merge shards and documents into the database, by writing a new file that then replaces it.

    Afterwards the database matches the files: local shards and documents win over the former content of the database,
    even if they are shorter or older. If documents with the same name are merged together, as from several projects,
    the newest wins; if projects are merged one after another, the last one wins. Records without a local file stay,
    and so do the user's own tables, views and indexes. Merging again changes nothing.

    The hash of the database is stored next to it. A database with this hash is copied, and only changed shards are
    parsed; parsing all shards would take 12 times as long if there are 1,000. Any other database is rebuilt, such as
    one from an older version, or one that is damaged or was changed by the user. All files are merged, and records
    without a local file are copied if they can be read and fit. If any of these is lost, the old file is kept.

    Raises:
        DocumentError: a document is missing or broken.
        StoreError: a shard cannot be read or is corrupt; a shard or the database was written by a newer Anole; or the
            database was not written by Anole, or cannot be written. The database is then unchanged.
    """
    sources = _Sources(shards_dir, tuple(manifests), tuple(builds), tuple(evaluations))
    with hold_database(database_path) as file:
        seal, sha256 = _read_seal(file.path), sources.sha256()
        trusted = seal is not None and (seal.database_sha256, seal.schema_sha256) == (file.sha256, schema_sha256())
        if trusted and seal is not None and seal.sources_sha256 == sha256:
            return replace(seal.merged, changed_runs=0)
        merged = _merge(file, sources, trusted=trusted)
        assert file.sha256 is not None, "the database was written"
        seal = Seal(file.sha256, schema_sha256(), sha256, replace(merged, replaced=()))
        write_document(seal_path(file.path), seal)
    return merged


def _read_seal(database: Path) -> Seal | None:
    """Return the seal of a database; None if it is missing or broken."""
    try:
        return read_document(seal_path(database), Seal, "merge")
    except DocumentError:
        return None


def _merge(file: HeldDatabase, sources: _Sources, *, trusted: bool) -> Merged:
    """Merge into a copy of a trusted file; otherwise rebuild the database, and copy what only the old file contains."""
    log, missing = MergeLog(), []
    with file.replacing(empty=not trusted) as db, ExitStack() as stack:
        old = None
        try:
            old = _open_old(file, stack)
        except UnreadableError as error:
            missing.append(str(error).removeprefix(f"{file.path}: "))
        snapshot, copy = Snapshot(old), None if trusted or old is None else UserDataCopy(db, old)
        if not trusted:
            create_tables(db.conn)
        with db.atomic():
            # The user's own tables may refer to rows that are rewritten.
            db.execute(f"pragma defer_foreign_keys = {'on' if trusted else 'off'}")
            fold_shards(db, sources.shards_dir, snapshot, log, trusted=trusted)
            if copy is not None:
                copy.copy_runs(snapshot)
            _fold_documents(db, sources, snapshot, log)
            if copy is not None:
                copy.copy_documents(log)
        create_views(db.conn)
        if copy is not None:
            copy.copy_user_tables()
            missing += copy.missing
        if missing:
            summary = f"was rebuilt from shards and documents; the old file was kept as {file.keep_aside().name}"
            log.replaced += [f"{file.path}: {sentence}" for sentence in (summary, *missing)]
        return _merge_result(db, log)


def _open_old(file: HeldDatabase, stack: ExitStack) -> UntrustedDatabase | None:
    """Open the old file; raise StoreError if a merge must not replace it."""
    if file.sha256 is None:
        return None
    old = stack.enter_context(open_database(file.path))
    old.check_version("update Anole, or move the file away and merge again")
    old.check_is_anole()
    return old


def _fold_documents(db: Database, sources: _Sources, snapshot: Snapshot, log: MergeLog) -> None:
    for path in sources.manifests:
        with name_file_in_errors(path):
            fold_manifest(db, path)
    builds = ((folder, read_build(folder)) for folder in sources.builds)
    for folder in _newest(((build.name, build.created_at, folder) for folder, build in builds), log):
        with name_file_in_errors(folder):
            fold_build(db, folder, snapshot, log)
    evaluations = ((path, read_evaluation(path)) for path in sources.evaluations)
    for path in _newest(((evaluation.build, evaluation.created_at, path) for path, evaluation in evaluations), log):
        with name_file_in_errors(path):
            fold_evaluation(db, path, snapshot, log)


def _newest(documents: Iterable[tuple[str, str, Path]], log: MergeLog) -> list[Path]:
    """Return the path of the newest document with each name, given triples of name, creation time and path."""
    newest: dict[str, tuple[str, Path]] = {}
    for name, created_at, path in documents:
        older, newest[name] = sorted((newest.get(name, (created_at, path)), (created_at, path)))
        if older != newest[name]:
            log.ignored.append(f"{older[1]}: is not merged: {newest[name][1]} has the same name and is newer")
    return [path for _, path in newest.values()]


def _merge_result(db: Database, log: MergeLog) -> Merged:
    runs = {key: sealed for key, sealed in db.execute("select key, sealed from run")}
    local_runs = log.shards
    return Merged(
        changed_runs=len(log.runs),
        runs=len(runs),
        trials=db.execute("select count(*) from trial").fetchone()[0],
        runs_without_shard=len(runs.keys() - local_runs),
        unsealed_runs=sum(not sealed for key, sealed in runs.items() if key in local_runs),
        ignored=tuple(log.ignored),
        replaced=tuple(log.replaced),
    )
