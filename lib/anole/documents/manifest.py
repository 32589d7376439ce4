"""The manifest: which tasks a model has on a target, and what it was extracted from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from anole.declared.entries import ModelSpec
from anole.documents import layout
from anole.documents.document import differing, read_document, write_document
from anole.documents.task import read_task
from anole.errors import DocumentError
from anole.keys import Key
from anole.plain import FLAT, LATER
from anole.task import Task


@dataclass(frozen=True)
class Origin:
    """Everything that a manifest depends on beside the model's own files.

    Attributes:
        entry: the model's entry in models.yaml.
        target_description: everything that identifies the target.
        versions: the versions of the extraction and of the target's templates.
    """

    entry: Mapping[str, Any] = field(hash=False)
    target_description: Mapping[str, Any] = field(hash=False)
    versions: Mapping[str, int] = field(hash=False)


@dataclass(frozen=True)
class ListedTask:
    """A task in a manifest.

    Attributes:
        flop: floating-point operations of one call.
        weight: how often the model runs the task.
        layers: the names of the layers that are this task.
    """

    key: Key
    label: str
    flop: int
    weight: int
    layers: tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """The tasks of a model on a target, in the order of their first layer.

    Attributes:
        model: the model's name in models.yaml.
        target: the target's name in models.yaml.
        source: where the model comes from, as in models.yaml.
        inputs: the shape of each input, by name.
        flop: floating-point operations of all tasks in one run of the model.
        prepared: how the preparation of an ONNX file changed its operators; empty in older manifests.
    """

    model: str
    target: str
    source: str
    inputs: Mapping[str, Any] = field(hash=False)
    origin: Annotated[Origin, FLAT]
    tasks: tuple[ListedTask, ...]
    flop: int
    prepared: Annotated[tuple[str, ...], LATER] = ()

    @property
    def model_spec(self) -> ModelSpec:
        """The model as models.yaml describes it."""
        return ModelSpec.from_json(self.model, self.origin.entry)

    @property
    def weights(self) -> dict[str, int]:
        """How often the model runs each task, by the task's key."""
        return {task.key: task.weight for task in self.tasks}


def read_manifest(path: Path, origin: Origin | None = None) -> Manifest:
    """Reads a manifest that is up to date.

    Args:
        path: the manifest's file.
        origin: what the manifest must be extracted from; anything when None.

    Raises:
        DocumentError: the manifest is missing or broken, or was extracted from something else.
    """
    manifest = read_document(path, Manifest, "extract")
    changed = [] if origin is None else differing(manifest.origin, origin)
    if changed:
        raise DocumentError(path, f"is of another {' and '.join(changed)} than models.yaml", "extract")
    return manifest


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Writes a manifest."""
    write_document(path, manifest)


def read_listed_task(manifest_path: Path, key: str) -> Task:
    """Reads a task that a manifest lists, from the project that the manifest belongs to.

    Raises:
        DocumentError: the task's file is missing or broken, or holds another task.
    """
    return read_task(layout.project_of_manifest(manifest_path) / layout.task_path(key))
