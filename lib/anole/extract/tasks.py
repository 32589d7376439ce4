"""Extract the distinct tasks of a model on a target."""

from __future__ import annotations

from collections.abc import Mapping

from anole.config.entries import ModelSpec
from anole.documents.manifest import ListedTask, Manifest, Origin
from anole.extract.imported import Imported
from anole.extract.load import load_model
from anole.targets.base import Target
from anole.task import Task, Workload


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
    from anole.extract.graph import find_layers, for_low_precision

    layers: dict[Workload, list[str]] = {}
    imported = imported if imported is not None else load_model(model)
    for position, layer in enumerate(find_layers(for_low_precision(imported, target))):
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
