"""The extract stage: find the distinct tasks of a model, and write its manifest, network and task files."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anole.config.entries import ModelSpec
from anole.documents.manifest import ListedTask, Manifest, Origin, network_path, write_manifest, write_task
from anole.extract.imported import Imported, write_network
from anole.extract.load import EXTRACT_VERSION, load_model, pause_collector
from anole.targets import get_target
from anole.targets.base import Target
from anole.task import Task, Workload
from anole.text_format import pluralize

logger = logging.getLogger(__name__)


@pause_collector()
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
    logger.info("%s on %s: %s", model.name, target, pluralize(len(tasks), "distinct layer"))


def extract_versions(description: Mapping[str, Any]) -> dict[str, int]:
    """Return the versions of the code that determines a model's tasks on a target."""
    return {"extract": EXTRACT_VERSION, **get_target(description).template_versions}


def extract_tasks(
    model: ModelSpec,
    target_name: str,
    target: Target,
    versions: Mapping[str, int] | None = None,
    files: str | None = None,
    imported: Imported | None = None,
) -> tuple[Manifest, list[Task]]:
    """Return the manifest and the distinct tasks of a model on a target.

    Args:
        model: the model's entry.
        target_name: the target's name in models.yaml.
        target: the target, which determines the supported operators and dtypes.
        versions: the versions of the extraction and of the target's templates.
        files: the digest of the model's own files.
        imported: the model's network; without one, the model is imported.

    Returns:
        The model's manifest, and its tasks in the order of their first layer.

    Raises:
        ExtractError: the model cannot be loaded or imported.
    """
    from anole.extract.graph import find_layers, for_target

    layers: dict[Workload, list[str]] = {}
    imported = imported if imported is not None else load_model(model)
    for position, layer in enumerate(find_layers(for_target(imported, target))):
        if target.takes(layer.workload, position):
            layers.setdefault(layer.workload, []).append(layer.name)
    tasks = [Task(workload, target.description, target.template_version(workload)) for workload in layers]
    listed = tuple(
        ListedTask(task.key, task.label, task.workload.flop, len(layers[task.workload]), tuple(layers[task.workload]))
        for task in tasks
    )
    manifest = Manifest(
        model=model.name,
        target=target_name,
        source=model.source,
        inputs={name: list(shape) for name, shape in model.inputs.items()},
        origin=Origin(model.to_json(), dict(target.description), dict(versions or {}), files),
        tasks=listed,
        flop=sum(task.weight * task.flop for task in listed),
        prepared=imported.prepared,
    )
    return manifest, tasks
