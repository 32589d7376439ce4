"""The registry of target kinds: the CPU, and the kinds that installed packages, including Anole's own, add."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from typing import Any, cast

from anole.errors import TargetError, cause
from anole.targets.base import Device, DeviceLocation, ProfilableDevice, Simulator, named_object
from anole.targets.kind import Kind

HOST = "cpu"
"""The kind of this machine's CPU; every other kind also requires the CPU."""

GROUP = "anole.targets"
"""The group of entry points through which installed packages add kinds, each under the kind's name."""


def all_kinds() -> list[str]:
    """Return the names of all kinds of targets, sorted."""
    return sorted({HOST, *entry_points(group=GROUP).names})


def get_kind(name: str) -> Kind:
    """Return a kind of target; raise TargetError if it is unknown, or its package cannot be imported."""
    if name == HOST:
        return cast("Kind", named_object("anole.targets.cpu.settings:KIND"))
    entry_point = next(iter(entry_points(group=GROUP, name=name)), None)
    if entry_point is None:
        raise TargetError(f"unknown target kind {name!r}; use one of {', '.join(all_kinds())}")
    try:
        kind: Kind = entry_point.load()
    except Exception as error:
        raise TargetError(f"target kind {name!r} ({entry_point.value}) cannot be imported: {cause(error)}") from error
    return kind


def usable_kinds() -> dict[str, Kind]:
    """Return all kinds by name, except kinds whose package cannot be imported."""
    kinds = {}
    for name in all_kinds():
        with suppress(TargetError):
            kinds[name] = get_kind(name)
    return kinds


def kind_of(description: Mapping[str, Any]) -> Kind:
    """Return the kind of a described target; raise TargetError if it is unknown."""
    return get_kind(str(description.get("kind")))


def get_target(description: Mapping[str, Any]) -> Device | Simulator:
    """Return a described target; raise TargetError if its kind is unknown."""
    return kind_of(description).target(description)


def get_profilable(description: Mapping[str, Any]) -> ProfilableDevice | None:
    """Return a described target, or None if kernels cannot be timed one by one on its kind."""
    kind = kind_of(description)
    return cast("ProfilableDevice", kind.target(description)) if kind.profilable else None


def get_device(description: Mapping[str, Any]) -> Device:
    """Return a described target as a device to measure on; raise TargetError if it is simulated."""
    target = get_target(description)
    if target.location is DeviceLocation.SIMULATOR:
        raise TargetError(f"{description['kind']} is simulated; there is no device to measure on")
    return target
