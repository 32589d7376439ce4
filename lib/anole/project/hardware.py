"""Which hardware is here, and what may be built for hardware that is elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anole.errors import SpecError, TargetError
from anole.spec.entries import TargetSpec
from anole.store.shard import read_head
from anole.targets import get_kind, get_target


@dataclass(frozen=True)
class Hardware:
    """A target of models.yaml, as it was looked for.

    Attributes:
        description: None when it cannot even be described, because it is not here to be asked.
        absence: why nothing can be measured on it from here; None when it can.
    """

    description: Mapping[str, Any] | None
    absence: str | None


def describe_target(target: TargetSpec) -> dict[str, Any]:
    """Returns a target's whole description, in plain JSON values: what models.yaml sets and what is detected.

    Raises:
        SpecError: there can be no such target here.
    """
    try:
        return get_kind(target.kind).describe(**target.settings)
    except TargetError as error:
        raise SpecError(f"targets.{target.name}", str(error), target.file) from error


def look_for(target: TargetSpec) -> Hardware:
    """Returns what there is of a target.

    Raises:
        SpecError: there is a mistake in what is asked for, or it is required and not even described.
    """
    try:
        description = describe_target(target)
    except SpecError as error:
        if target.required or target.settings:
            raise
        return Hardware(None, str(error))
    return Hardware(description, get_target(description).absence() if target.remote is None else None)


def any_records(shards_dir: Path, description: Mapping[str, Any]) -> bool:
    """Returns whether there is a shard of any run on a target."""
    shards = (next(folder.glob("*.jsonl"), None) for folder in shards_dir.glob("*"))
    heads = (read_head(path) for path in shards if path is not None)
    return any(head[1].target == description for head in heads if head is not None)
