"""The documents that other stages leave behind: a model's manifest, a build's and its evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anole.documents.shape import (
    FLAG,
    KEY,
    LIST,
    NOTHING,
    NUMBER,
    OBJECT,
    TEXT,
    TIME,
    WHOLE,
    Shape,
    misfit,
    parse_json,
    shown,
)
from anole.errors import StoreError
from anole.files import read_bytes
from anole.task import Task

SCHEMA = 1
"""The version of the documents; a reader refuses newer ones."""

MANIFEST: Shape = {
    "schema": WHOLE,
    "model": TEXT,
    "target": TEXT,
    "source": TEXT,
    "inputs": OBJECT,
    "flop": WHOLE,
    "tasks": [{"key": KEY, "weight": WHOLE, "layers": LIST}],
}
BUILD: Shape = {
    "schema": WHOLE,
    "name": TEXT,
    "model": TEXT,
    "target": TEXT,
    "preset": TEXT,
    "trials": WHOLE,
    "shared": FLAG | NOTHING,
    "seed": WHOLE,
    "created_at": TIME,
    "coverage": OBJECT,
    "tasks": [
        {
            "key": KEY,
            "label": TEXT,
            "flop": WHOLE,
            "weight": WHOLE,
            "config": OBJECT | NOTHING,
            "matched": TEXT,
            "run_key": TEXT | NOTHING,
            "latency_s": NUMBER | NOTHING,
            "reason": TEXT | NOTHING,
            "refined": LIST | NOTHING,
        }
    ],
    "size_bytes": WHOLE | NOTHING,
}
_REFINED: Shape = {"config": OBJECT, "latency_s": NUMBER | NOTHING, "latency_alone_s": NUMBER, "chosen": FLAG}
_COVERAGE: Shape = {"tuned_flop": WHOLE, "total_flop": WHOLE, "share": NUMBER}
EVALUATION: Shape = {
    "schema": WHOLE,
    "build": TEXT,
    "created_at": TIME,
    "threads": WHOLE,
    "host": OBJECT,
    "versions": OBJECT,
    "coverage_share": NUMBER,
    "latencies": [
        {
            "reference": TEXT,
            "latency_s": NUMBER,
            "latency_std_s": NUMBER | NOTHING,
            "reference_latency_s": NUMBER,
            "reference_latency_std_s": NUMBER | NOTHING,
            "speedup": NUMBER,
            "relative_error": NUMBER,
            "snr_db": NUMBER | NOTHING,
            "rounds": WHOLE | NOTHING,
        }
    ],
}


@dataclass(frozen=True)
class Document:
    """A JSON document of a known shape, and where it was read."""

    path: Path
    plain: Mapping[str, Any] = field(hash=False)

    def error(self, problem: str) -> StoreError:
        """Returns the error of this document."""
        return StoreError(f"{self.path}: {problem}")


def read_manifest(path: Path) -> Document:
    """Reads the manifest that extracting left of a model on a target.

    Raises:
        StoreError: it cannot be read or is not a manifest.
    """
    return _read(path, MANIFEST, "anole extract")


def read_build(path: Path) -> Document:
    """Reads a build's description.

    Raises:
        StoreError: it cannot be read or is not such a description.
    """
    build = _read(path, BUILD, "anole compile")
    refined = [
        misfit(tried, _REFINED, f"tasks[{position}].refined[{number}].")
        for position, task in enumerate(build.plain["tasks"])
        for number, tried in enumerate(task.get("refined") or ())
    ]
    for problem in (misfit(build.plain["coverage"], _COVERAGE, "coverage."), *refined):
        if problem is not None:
            raise build.error(problem)
    return build


def read_evaluation(path: Path) -> Document:
    """Reads what evaluating a build found.

    Raises:
        StoreError: it cannot be read or is not an evaluation.
    """
    return _read(path, EVALUATION, "anole evaluate")


def read_task(manifest: Document, key: str) -> Task:
    """Reads the body of a manifest's task, ``tasks/<key>.json`` beside the folder of all models' manifests.

    Raises:
        StoreError: it cannot be read or is another task.
    """
    path = manifest.path.parent.parent.parent / "tasks" / f"{key}.json"
    if not path.exists():
        raise manifest.error(f"its task {path} is missing; extract the model again (snakemake -R extract)")
    document = Document(path, _parse(path, "anole extract"))
    try:
        task = Task.from_json(document.plain)
        found = task.key
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise document.error(f"is not a task ({type(error).__name__}: {error})") from error
    if found != key:
        raise document.error(f"holds a task with the key {found}; delete it and extract the model again")
    return task


def _read(path: Path, shape: Shape, maker: str) -> Document:
    document = Document(path, _parse(path, maker))
    version = document.plain.get("schema")
    if isinstance(version, int) and version > SCHEMA:
        raise document.error(f"was written by a newer Anole (schema {version}; this one reads {SCHEMA})")
    problem = misfit(document.plain, shape)
    if problem is not None:
        raise document.error(f"{problem}; `{maker}` writes it anew")
    return document


def _parse(path: Path, maker: str) -> dict[str, Any]:
    try:
        plain = parse_json(read_bytes(path))
    except ValueError as error:
        raise StoreError(f"{path}: is not JSON ({error}); `{maker}` writes it anew") from error
    if not isinstance(plain, dict):
        raise StoreError(f"{path}: holds {shown(plain)}, not an object; `{maker}` writes it anew")
    return plain
