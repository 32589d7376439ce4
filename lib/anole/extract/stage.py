"""The stage that extracts: from a model to its manifest and the files of its tasks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anole.documents.manifest import write_manifest
from anole.documents.task import write_task
from anole.extract.load import EXTRACT_VERSION
from anole.extract.tasks import extract_tasks
from anole.spec.entries import ModelSpec
from anole.targets import get_target

logger = logging.getLogger(__name__)


def extract_model(
    model: ModelSpec, target: str, description: Mapping[str, Any], manifest_path: Path, tasks_dir: Path
) -> None:
    """Writes a model's manifest for a target, and every task that is in it.

    Args:
        model: what is extracted.
        target: its name in models.yaml.
        description: of the target.
        manifest_path: what is written last, so that where it is, all its tasks are.
        tasks_dir: where tasks are shared by all models; those that are there already stay untouched.

    Raises:
        ExtractError: the model cannot be loaded or turned into tasks.
    """
    hardware = get_target(description)
    versions = extract_versions(description)
    manifest, tasks = extract_tasks(model, target, description, hardware.template_version, hardware.takes, versions)
    if not tasks:
        logger.warning("model %s: has no layer that target %s can run", model.name, target)
    for task in tasks:
        write_task(tasks_dir / f"{task.key}.json", task)
    write_manifest(manifest_path, manifest)


def extract_versions(description: Mapping[str, Any]) -> dict[str, int]:
    """Returns the versions of what decides into which tasks a model is split for a target."""
    return {"extract": EXTRACT_VERSION, **get_target(description).template_versions}
