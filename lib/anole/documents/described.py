"""The stored description of a target, for processes that must not or cannot detect the hardware themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anole.documents.document import read_document, write_document


@dataclass(frozen=True)
class DescribedTarget:
    """A target as described on a cluster's node or on the machine that runs the workflow.

    Attributes:
        asked: the target's kind, settings and nodes in models.yaml; see `anole.project.hardware.hardware_request`.
        description: everything that identifies the target; None if it cannot be detected.
        absence: why that machine cannot measure on the target; None if it or another machine may.
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
