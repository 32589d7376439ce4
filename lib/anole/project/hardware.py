"""Detects whether a target's hardware is present, and whether builds for absent hardware are possible."""

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
    """The result of looking for a target's hardware.

    Attributes:
        description: the target's complete description; None if it cannot be detected because the hardware is absent.
        absence: the reason why this machine cannot measure on the target; None if it can.
    """

    description: Mapping[str, Any] | None
    absence: str | None


def describe_target(target: TargetSpec) -> dict[str, Any]:
    """Returns a target's complete description in plain JSON values: the settings of models.yaml and detected ones.

    Raises:
        SpecError: the target is not possible on this machine.
    """
    try:
        return get_kind(target.kind).describe(**target.settings)
    except TargetError as error:
        raise SpecError(f"targets.{target.name}", str(error), target.file) from error


def look_for(target: TargetSpec) -> Hardware:
    """Looks for a target's hardware.

    Raises:
        SpecError: the target's entry has a mistake, or the target is required and cannot be described.
    """
    try:
        description = describe_target(target)
    except SpecError as error:
        if target.required or target.settings:
            raise
        return Hardware(None, str(error))
    return Hardware(description, get_target(description).absence() if target.remote is None else None)


def any_records(shards_dir: Path, description: Mapping[str, Any]) -> bool:
    """Returns whether any run on a target has a shard."""
    shards = (next(folder.glob("*.jsonl"), None) for folder in shards_dir.glob("*"))
    heads = (read_head(path) for path in shards if path is not None)
    return any(head[1].target == description for head in heads if head is not None)
