"""Merges shards, manifests, builds and evaluations into the database, which can always be rebuilt from them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from sqlite_utils import Database

from anole.documents.build import FILE, read_build
from anole.documents.evaluation import read_evaluation
from anole.errors import StoreError
from anole.merge.checksums import changed_since, entities, store
from anole.merge.condition import damage_of, is_damage, is_ours
from anole.merge.folding import fold_build, fold_evaluation, fold_manifest, naming
from anole.merge.merged import Changes, Merged
from anole.merge.migrations import create_views, migrations, rewrite_applied, unknown_migrations
from anole.merge.replacement import HeldDatabase, held
from anole.merge.salvage import salvage_others, salvage_runs
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


class _ChangedError(Exception):
    """Rows of the database are not those that the last merge wrote; the message says which."""


def merge_files(
    shards_dir: Path,
    manifests: Iterable[Path],
    builds: Iterable[Path],
    evaluations: Iterable[Path],
    database_path: Path,
) -> Merged:
    """Merges shards and documents into the database, in one transaction on a copy that then replaces it.

    The database then equals the files: a local shard and a document win over what the database held, also when they are
    shorter or older. Of two documents of one name that are merged together, as when several projects are merged into
    one database, the newer one wins; of projects that are merged one after another, the last one does. What has no file
    here stays. Merging again changes nothing. The user's own tables, views and indexes are not changed.

    The hash of the database is kept beside it. If the file has another hash, nothing in it is believed: it is checked,
    all files are merged again, and what has no file here must have its checksum. A file that is damaged is kept aside,
    and the database is made anew.

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
    sources = _Sources(shards_dir, tuple(manifests), tuple(builds), tuple(evaluations))
    with held(database_path) as file:
        seal, sha256 = read_seal(file.path), sources.sha256()
        trusted = file.sha256 is None or (seal is not None and seal.database_sha256 == file.sha256)
        if trusted and file.sha256 is not None and seal is not None and seal.sources_sha256 == sha256:
            return replace(seal.merged, changed_runs=0)
        merged = _merge(file, sources, trusted)
        assert file.sha256 is not None, "the database was written"
        write_seal(file.path, Seal(file.sha256, sha256, replace(merged, replaced=())))
    return merged


def _merge(file: HeldDatabase, sources: _Sources, trusted: bool) -> Merged:
    damage = None if trusted else file.damage or damage_of(file.path)
    if damage is None:
        try:
            with file.replaced() as db:
                return _fold(db, file.path, sources, trusted)
        except _ChangedError as error:
            damage = str(error)
        except (sqlite3.Error, UnicodeError) as error:
            if trusted or not is_ours(file.path) or not is_damage(error):
                raise
            damage = " ".join(str(error).split())
    with file.replaced(anew=True) as db:
        merged = _fold(db, file.path, sources, True, salvaged=file.path)
        aside = file.kept_aside()
    said = f"{file.path}: is damaged ({damage}); it was kept as {aside.name}, and made anew from shards and documents"
    return replace(merged, replaced=(said, *merged.replaced))


def _fold(db: Database, path: Path, sources: _Sources, trusted: bool, salvaged: Path | None = None) -> Merged:
    if not trusted:
        rewrite_applied(db)
    _refuse_newer(db, path)
    changes = Changes()
    has_checksums = db.table("checksum").exists()
    with db.atomic():
        db.execute("pragma defer_foreign_keys = on")
        migrations.apply(db)
        fold_shards(db, sources.shards_dir, changes, trusted=trusted)
        missing = [] if salvaged is None else salvage_runs(db, salvaged)
        _fold_documents(db, sources, changes)
        create_views(db)
        if has_checksums and not trusted:
            _refuse_changed(db, changes)
        store(db.conn, changes.entities if has_checksums else entities(db.conn))
        if salvaged is not None:
            missing += salvage_others(db, salvaged)
        changes.replaced += [f"{path}: {sentence}" for sentence in dict.fromkeys(missing)]
    return _merged(db, changes)


def _fold_documents(db: Database, sources: _Sources, changes: Changes) -> None:
    for path in sources.manifests:
        with naming(path):
            fold_manifest(db, path, changes)
    for folder in _newest(sources.builds, _build, changes):
        with naming(folder):
            fold_build(db, folder, changes)
    for path in _newest(sources.evaluations, _evaluation, changes):
        with naming(path):
            fold_evaluation(db, path, changes)


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


def _refuse_newer(db: Database, database_path: Path) -> None:
    unknown = unknown_migrations(db)
    if unknown:
        raise StoreError(
            f"{database_path}: was written by a newer Anole ({', '.join(unknown)} is not known here); update "
            "Anole, or move the file away and merge again"
        )


def _refuse_changed(db: Database, changes: Changes) -> None:
    changed = changed_since(db.conn, changes.entities)
    if changed:
        kind, key = changed[0]
        others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise _ChangedError(f"the {kind} {key}{others} is not as it was merged")


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
