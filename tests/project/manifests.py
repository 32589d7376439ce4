"""Load projects, and write the outputs of extracting a model without a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from anole.documents import layout
from anole.documents.manifest import ListedTask, Manifest, write_manifest
from anole.project.pipeline import Pipeline


def load(project: Path, models: str | None = None) -> Pipeline:
    """Load a project, after replacing models.yaml if a text is given."""
    path = project / "models.yaml"
    if models is not None:
        path.write_text(models)
    return Pipeline.load(path)


def leave_manifest(pipeline: Pipeline, model: str, target: str, tasks: Sequence[ListedTask], **changes: Any) -> Path:
    """Write a manifest, with changes to its origin, and a file for each of its tasks."""
    path = pipeline.project / layout.manifest_path(model, target)
    origin = replace(pipeline.origin(model, target), **changes)
    source, flop = pipeline.spec.models[model].source, sum(each.flop * each.weight for each in tasks)
    write_manifest(path, Manifest(model, target, source, {}, origin, tuple(tasks), flop))
    for each in tasks:
        task = pipeline.project / layout.task_path(each.key)
        task.parent.mkdir(parents=True, exist_ok=True)
        task.write_text("{}")
    return path
