"""The hardware of a target and whether it is available: detected, or read from a stored description."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anole.config.entries import TargetSpec
from anole.documents import layout
from anole.documents.described import DescribedTarget, read_described, write_described
from anole.errors import DocumentError, SpecError, TargetError
from anole.store.shard import read_head
from anole.targets import get_kind, get_target


@dataclass(frozen=True)
class Hardware:
    """The result of looking for a target's hardware.

    Attributes:
        description: the target's complete description; None if it cannot be detected, because the hardware is absent or
            because no node has described it yet.
        absence: the reason that this machine cannot measure on the target; None if it or another machine may.
    """

    description: Mapping[str, Any] | None
    absence: str | None


def hardware_request(target: TargetSpec) -> dict[str, Any]:
    """Return a target's hardware as given in models.yaml: kind, settings and nodes."""
    return {"kind": target.kind, "settings": dict(target.settings), "nodes": dict(target.nodes)}


def is_detected_on_nodes(target: TargetSpec) -> bool:
    """Whether the target can only be detected on a node of a cluster."""
    return bool(target.nodes) and not set(get_kind(target.kind).detected) <= set(target.settings)


def describe_target(target: TargetSpec, project: Path = Path()) -> dict[str, Any]:
    """Return a target's complete description in plain JSON values: the settings in models.yaml and the detected ones.

    Raises:
        SpecError: this machine cannot describe the target, or no node has described it yet.
    """
    if is_detected_on_nodes(target):
        described = _read_stored(target, project)
        if described is None or described.description is None:
            path = layout.described_path(target.name)
            problem = f"no node has described it yet; run `snakemake {path}` with your cluster's profile"
            raise SpecError(f"targets.{target.name}", problem, target.file)
        return dict(described.description)
    return _detect(target)


def look_for(target: TargetSpec, project: Path = Path(), kept: bool = False) -> Hardware:
    """Look for a target's hardware.

    If `kept`, use the description that the main workflow process stored in the project's folder, if it is up to date,
    because jobs on other machines must not detect those machines instead.

    Raises:
        SpecError: the target cannot be described, and it is required or has settings.
    """
    if kept or is_detected_on_nodes(target):
        described = _read_stored(target, project)
        if described is not None:
            return Hardware(described.description, described.absence)
        if is_detected_on_nodes(target):
            return Hardware(None, None)
    try:
        description = _detect(target)
    except SpecError as error:
        if target.required or target.settings:
            raise
        return Hardware(None, str(error))
    is_elsewhere = target.remote is not None or target.nodes
    return Hardware(description, None if is_elsewhere else get_target(description).absence())


def describe_this_machine(asked: Mapping[str, Any]) -> DescribedTarget:
    """Describe this machine as a cluster's target that `hardware_request` returned.

    Raises:
        TargetError: this machine cannot be the target, or differs from models.yaml.
    """
    settings = asked["settings"]
    description = get_kind(asked["kind"]).describe(**settings)
    for name in get_kind(asked["kind"]).detected:
        if name in settings and description.get(name) != settings[name]:
            raise TargetError(f"{platform.node()}: found {name} {description.get(name)!r}, not {settings[name]!r}")
    if (absence := get_target(description).absence()) is not None:
        raise TargetError(f"{platform.node()}: {absence}")
    return DescribedTarget(asked, description, None, platform.node())


def keep(target: TargetSpec, hardware: Hardware, project: Path) -> None:
    """Store a target's hardware for the jobs of this workflow, which may run on other machines."""
    described = DescribedTarget(hardware_request(target), hardware.description, hardware.absence, platform.node())
    write_described(project / layout.described_path(target.name), described)


def has_records(shards_dir: Path, description: Mapping[str, Any]) -> bool:
    """Whether any run on a target has a shard."""
    shards = (next(folder.glob("*.jsonl"), None) for folder in shards_dir.glob("*"))
    heads = (read_head(path) for path in shards if path is not None)
    return any(head[1].target == description for head in heads if head is not None)


def _detect(target: TargetSpec) -> dict[str, Any]:
    try:
        return get_kind(target.kind).describe(**target.settings)
    except TargetError as error:
        raise SpecError(f"targets.{target.name}", str(error), target.file) from error


def _read_stored(target: TargetSpec, project: Path) -> DescribedTarget | None:
    """Return a target's stored description; None if none is stored or models.yaml has changed since."""
    try:
        described = read_described(project / layout.described_path(target.name))
    except DocumentError:
        return None
    return described if described.asked == hardware_request(target) else None
