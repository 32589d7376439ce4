"""The merge stage: read shards, manifests, builds and evaluations, and write the database."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from anole.documents import layout
from anole.documents.build import FILE, read_build
from anole.documents.document import write_document
from anole.errors import StoreError
from anole.files import read_bytes, write_atomically
from anole.keys import Time
from anole.merge.database import Merged, merge_files
from anole.record import utc_now
from anole.store.content import read_stored, seal_lines
from anole.store.lines import complete_lines
from anole.store.shard import Shard, is_copy, shard_paths

logger = logging.getLogger(__name__)

_MAX_LOGGED = 10
"""Maximum number of messages of one kind to log; only the number of further ones is logged."""


@dataclass(frozen=True)
class Stamp:
    """The result of a merge, stored as the output of the workflow's rule."""

    database: str
    merged_at: Time
    builds: tuple[str, ...]
    merged: Merged


def merge_builds(
    folders: Iterable[Path], shards_dir: Path, database_path: Path, stamp: Path | None = None, *, seal: bool = False
) -> None:
    """Merge all shards, and the documents of some builds, into the database, which is created if missing.

    A build's manifest and evaluation are read from the project that contains its folder. A build that is not compiled
    yet is skipped with a warning. The result is written to `stamp` after the database. With `seal`, shards of older
    versions get checksums first.

    Raises:
        DocumentError: a document is missing or broken.
        StoreError: a shard cannot be read, or the database cannot be written.
    """
    if seal:
        logger.info("%s: added checksums to %d shards", shards_dir, seal_shards(shards_dir))
    build_folders, manifests, evaluations, names = [], set(), [], []
    for folder in folders:
        if not (folder / FILE).exists():
            logger.warning("%s: is skipped: it is not compiled yet", folder)
            continue
        build, project = read_build(folder), layout.project_of_build(folder)
        build_folders.append(folder)
        names.append(build.name)
        manifests.add(project / layout.manifest_path(build.model, build.target))
        evaluation = project / layout.evaluation_path(build.name)
        if evaluation.exists():
            evaluations.append(evaluation)
    merged = merge_files(shards_dir, sorted(manifests), build_folders, evaluations, database_path)
    _log_result(merged, database_path)
    if stamp is not None:
        write_document(stamp, Stamp(str(database_path), utc_now(), tuple(names), merged))


def seal_shards(directory: Path) -> int:
    """Add checksums to the shards of a folder that have none; return the number of such shards."""
    return sum(_seal(directory, path) for path in shard_paths(directory))


def _log_result(merged: Merged, database_path: Path) -> None:
    for sentences in (merged.replaced, merged.ignored):
        for sentence in sentences[:_MAX_LOGGED]:
            logger.warning("%s", sentence)
        if len(sentences) > _MAX_LOGGED:
            logger.warning("and %d more of this kind", len(sentences) - _MAX_LOGGED)
    if merged.unsealed_runs:
        logger.warning(
            "%s: the shards of %d runs have no checksums; `anole merge --seal` adds them",
            *(database_path, merged.unsealed_runs),
        )
    remark = f", {merged.runs_without_shard} without a local shard" if merged.runs_without_shard else ""
    logger.info(
        "%s: %d runs (%d read%s), %d trials", *(database_path, merged.runs, merged.changed_runs, remark, merged.trials)
    )


def _seal(directory: Path, path: Path) -> bool:
    stored = read_stored(path)
    if stored is None or stored[0].sealed:
        return False
    content, data = stored
    if is_copy(path):
        try:
            return write_atomically(path, seal_lines(content, data))
        except OSError as error:
            raise StoreError(f"{path}: cannot be written: {error.strerror}") from error
    with Shard.open(directory, content.run, content.task) as shard:
        # A tuner may have appended trials before the shard was locked.
        shard.replace(seal_lines(shard.content, complete_lines(read_bytes(shard.path))))
    return True
