"""The manifest of a model on a target (its tasks and their origin), task files, and the order of a build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from anole.codec import FLAT, LATER
from anole.config.entries import ModelSpec
from anole.documents import layout
from anole.documents.document import differing_fields, read_document, read_object, text_with_checksum, write_document
from anole.errors import DocumentError
from anole.files import write_atomically
from anole.keys import Key
from anole.task import Task


@dataclass(frozen=True)
class Origin:
    """The inputs of a manifest.

    Attributes:
        versions: the versions of the extraction and of the target's templates.
        files: the digest of the model's own files, see `anole.project.content`; None for a model without files.
    """

    entry: Mapping[str, Any] = field(hash=False)
    target_description: Mapping[str, Any] = field(hash=False)
    versions: Mapping[str, int] = field(hash=False)
    files: Annotated[Key | None, LATER] = None


@dataclass(frozen=True)
class ListedTask:
    """A task in a manifest; `weight` is the number of its calls in one run of the model, `flop` is per call."""

    key: Key
    label: str
    flop: int
    weight: int
    layers: tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """The tasks of a model on a target, in the order of their first layer.

    Attributes:
        inputs: the shape of each input, by name; typical sizes for ranges.
        flop: floating-point operations of all tasks in one run of the model.
        prepared: the changes made to an ONNX file's operators before importing it; empty in older manifests.
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
        """The number of calls of each task in one run of the model, by task key."""
        return {task.key: task.weight for task in self.tasks}


@dataclass(frozen=True)
class Order:
    """The inputs of a build, except its receipts.

    Attributes:
        trials: the budget of each task or, if shared, of all tasks together.
        lock: the content key of the build's entry in the lock file, which is too long for an argument; or None.
    """

    model: str
    target: str
    origin: Origin
    preset: str
    trials: int
    shared: bool
    seed: int
    lock: Annotated[Key | None, LATER] = None

    @property
    def model_spec(self) -> ModelSpec:
        """The model as models.yaml describes it."""
        return ModelSpec.from_json(self.model, self.origin.entry)


def read_manifest(path: Path, origin: Origin | None = None) -> Manifest:
    """Read a manifest; raise DocumentError if it is missing, damaged, or has another origin than `origin`."""
    manifest = read_document(path, Manifest, "extract")
    changed_fields = [] if origin is None else differing_fields(manifest.origin, origin)
    if changed_fields == ["files"]:
        raise DocumentError(path, "the model's files have changed", "extract")
    if changed_fields:
        raise DocumentError(path, f"is stale: {' and '.join(changed_fields)} changed", "extract")
    return manifest


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a manifest."""
    write_document(path, manifest)


def network_path(manifest_path: Path) -> Path:
    """Return the path of a manifest's imported network."""
    return manifest_path.with_suffix(".network")


def read_listed_task(manifest_path: Path, key: str) -> Task:
    """Read a task that a manifest lists, from the manifest's project."""
    return read_task(layout.project_of_manifest(manifest_path) / layout.task_path(key))


def read_task(path: Path) -> Task:
    """Read a task; raise DocumentError if the file is missing or damaged, or holds a task other than its name says."""
    plain = read_object(path, "extract")
    try:
        task = Task.from_json(plain)
    except ValueError as error:
        raise DocumentError(path, f"is not a task: {error}", "extract") from error
    if path.stem != task.key:
        raise DocumentError(path, f"holds a task with the key {task.key}", "extract")
    return task


def write_task(path: Path, task: Task) -> None:
    """Write a task, unless the file holds it already."""
    write_atomically(path, text_with_checksum(task.to_json()))
