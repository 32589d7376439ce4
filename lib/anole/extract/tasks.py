"""The distinct tasks of a model on a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from anole.extract.load import load_model
from anole.task import Task, Workload

if TYPE_CHECKING:
    from anole.spec.entries import ModelSpec


def extract_tasks(
    model: ModelSpec,
    target_name: str,
    description: Mapping[str, Any],
    template_version: Callable[[Workload], int],
    takes: Callable[[Workload, int], bool] = lambda workload, position: True,
) -> tuple[dict[str, Any], list[Task]]:
    """Extracts the distinct tasks of a model on a target.

    Args:
        model: what to extract from.
        target_name: the target's name in models.yaml.
        description: the target's whole description.
        template_version: the version of the template that handles a workload on this target.
        takes: whether an anchor operator, given its position among all, is a task of this target.

    Returns:
        The model's manifest, in plain JSON values, and its tasks in the order of their first layer.

    Raises:
        ExtractError: the model cannot be loaded or imported.
    """
    from anole.extract.graph import find_layers

    layers: dict[Workload, list[str]] = {}
    for position, layer in enumerate(find_layers(load_model(model))):
        if takes(layer.workload, position):
            layers.setdefault(layer.workload, []).append(layer.name)
    tasks = [Task(workload, description, template_version(workload)) for workload in layers]
    listed = [
        {
            "key": task.key,
            "label": task.label,
            "flop": task.workload.flop,
            "weight": len(layers[task.workload]),
            "layers": layers[task.workload],
        }
        for task in tasks
    ]
    manifest = {
        "schema": 1,
        "model": model.name,
        "target": target_name,
        "source": model.source,
        "inputs": {name: list(shape) for name, shape in model.inputs.items()},
        "target_description": dict(description),
        "entry": model.to_json(),
        "tasks": listed,
        "flop": sum(task.workload.flop * len(layers[task.workload]) for task in tasks),
    }
    return manifest, tasks
