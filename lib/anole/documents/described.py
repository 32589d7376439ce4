"""The description of a target, kept in the project for processes that must not, or cannot, detect it themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anole.documents.document import read_document, write_document


@dataclass(frozen=True)
class DescribedTarget:
    """A target as it was described, on a node of a cluster or on the machine that runs the workflow.

    Attributes:
        asked: what models.yaml says of the target, with the names of the settings that identify it and its nodes.
        description: everything that identifies the target; None where it cannot be detected.
        absence: why that machine cannot measure on the target; None where it can.
    """

    asked: Mapping[str, Any] = field(hash=False)
    description: Mapping[str, Any] | None = field(hash=False)
    absence: str | None
    node: str


def read_described(path: Path) -> DescribedTarget:
    """Read the description of a target; raise DocumentError if the file is missing or broken."""
    return read_document(path, DescribedTarget, "describe")


def write_described(path: Path, described: DescribedTarget) -> None:
    """Write the description of a target."""
    write_document(path, described)
