"""The merge stage: reads shards, manifests, builds and evaluations, and writes the database."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from anole.documents import layout
from anole.documents.build import FILE, read_build
from anole.merge.database import merge_files

logger = logging.getLogger(__name__)


def merge_builds(folders: Iterable[Path], shards_dir: Path, database_path: Path) -> None:
    """Merges all shards, and the documents of some builds, into the database.

    A build's manifest and evaluation are read from the project that contains its folder.

    Args:
        folders: the builds' folders; a build that is not compiled yet is skipped with a warning.
        shards_dir: the folder of all shards.
        database_path: the database; created if missing.

    Raises:
        DocumentError: a document is missing or broken.
        StoreError: a shard cannot be read, or the database cannot be written.
    """
    compiled, manifests, evaluations = [], set(), []
    for folder in folders:
        if not (folder / FILE).exists():
            logger.warning("%s: is skipped: it is not compiled yet", folder)
            continue
        build, project = read_build(folder), layout.project_of_build(folder)
        compiled.append(folder)
        manifests.add(project / layout.manifest_path(build.model, build.target))
        evaluation = project / layout.evaluation_path(build.name)
        if evaluation.exists():
            evaluations.append(evaluation)
    merged = merge_files(shards_dir, sorted(manifests), compiled, evaluations, database_path)
    logger.info(
        "%s: %d runs, %d trials; %d runs are new or longer than before",
        *(database_path, merged.runs, merged.trials, merged.changed_runs),
    )
