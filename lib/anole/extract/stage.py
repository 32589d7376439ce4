"""The extract stage: write a model's manifest, network and task files."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anole.config.entries import ModelSpec
from anole.documents.manifest import network_path, write_manifest, write_task
from anole.extract.imported import write_network
from anole.extract.load import EXTRACT_VERSION, load_model, paused_collector
from anole.extract.tasks import extract_tasks
from anole.targets import get_target
from anole.text_format import counted

logger = logging.getLogger(__name__)


@paused_collector()
def extract_model(
    model: ModelSpec,
    target: str,
    description: Mapping[str, Any],
    manifest_path: Path,
    tasks_dir: Path,
    files: str | None = None,
) -> None:
    """Write a model's manifest for a target, its network, and the files of all its tasks.

    The manifest is written last: its presence means that all other files exist. Models share the folder of tasks;
    up-to-date task files are not rewritten. The manifest records `files`, the digest of the model's own files.

    Raises:
        ExtractError: the model cannot be loaded or turned into tasks.
    """
    hardware, versions = get_target(description), extract_versions(description)
    imported = load_model(model)
    manifest, tasks = extract_tasks(model, target, hardware, versions, files, imported)
    write_network(network_path(manifest_path), imported)
    if not tasks:
        logger.warning("model %s: has no layer that target %s can run", model.name, target)
    for task in tasks:
        write_task(tasks_dir / f"{task.key}.json", task)
    write_manifest(manifest_path, manifest)
    logger.info("%s on %s: %s", model.name, target, counted(len(tasks), "distinct layer"))


def extract_versions(description: Mapping[str, Any]) -> dict[str, int]:
    """Return the versions of the code that determines a model's tasks on a target."""
    return {"extract": EXTRACT_VERSION, **get_target(description).template_versions}
