"""The stage that merges: from shards, manifests, builds and evaluations to the database."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from anole.documents import layout
from anole.documents.documents import read_build
from anole.store.database import merge

logger = logging.getLogger(__name__)


def merge_builds(builds: Iterable[str], shards_dir: Path, database_path: Path) -> None:
    """Folds all shards, and what there is of some builds, into the database.

    Args:
        builds: their names; one that is not compiled yet is left out, and told of.
        shards_dir: of all shards.
        database_path: made when it is not there.

    Raises:
        StoreError: something cannot be read, or the database cannot be written.
    """
    paths = {name: layout.build_path(name) / "build.json" for name in builds}
    compiled = [path for path in paths.values() if path.exists()]
    for name, path in paths.items():
        if path not in compiled:
            logger.warning("%s is left out: it is not compiled yet", name)
    documents = [read_build(path).plain for path in compiled]
    manifests = {layout.manifest_path(build["model"], build["target"]) for build in documents}
    evaluations = [path for build in documents if (path := layout.evaluation_path(build["name"])).exists()]
    merged = merge(shards_dir, sorted(manifests), compiled, evaluations, database_path)
    logger.info(
        "%s: %d runs, %d trials; %d runs are new or longer than before",
        database_path,
        merged.runs,
        merged.trials,
        merged.changed_runs,
    )
