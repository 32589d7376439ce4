"""Targets: one package for each kind of hardware."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from anole.errors import TargetError
from anole.targets.base import Device, Simulator

TARGETS = {
    "cpu": "anole.targets.cpu.target:CpuTarget",
    "cuda": "anole.targets.cuda.target:CudaTarget",
    "vta": "anole.targets.vta.target:VtaTarget",
}
"""The class of every kind of target, imported when it is asked for."""


def get_target(description: Mapping[str, Any]) -> Device | Simulator:
    """Returns the target that a description names.

    Raises:
        TargetError: its kind is unknown.
    """
    target: Device | Simulator = _class_of(description.get("kind"))(description)
    return target


def get_device(description: Mapping[str, Any]) -> Device:
    """Returns the target that a description names, to be measured on.

    Raises:
        TargetError: its kind is unknown, or simulated.
    """
    target = get_target(description)
    if isinstance(target, Simulator):
        raise TargetError(f"{description['kind']} is simulated; there is no device to measure on")
    return target


def describe(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a target's whole description, in plain JSON values: what models.yaml sets and what is detected.

    Raises:
        TargetError: there can be no such target here.
    """
    description: dict[str, Any] = _class_of(kind).describe(**settings)
    return description


def _class_of(kind: object) -> Any:
    if kind not in TARGETS:
        raise TargetError(f"found target kind {kind!r}; allowed are {', '.join(TARGETS)}")
    module, _, name = TARGETS[str(kind)].partition(":")
    return getattr(import_module(module), name)
