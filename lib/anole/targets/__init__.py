"""Targets: one package for each kind of hardware."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from anole.errors import TargetError
from anole.targets.base import Target

TARGETS = {"cpu": "anole.targets.cpu.target:CpuTarget"}
"""The class of every kind of target, imported when it is asked for."""


def get_target(description: Mapping[str, Any]) -> Target:
    """Returns the target that a description names.

    Raises:
        TargetError: its kind is unknown.
    """
    kind = description.get("kind")
    if kind not in TARGETS:
        raise TargetError(f"found target kind {kind!r}; allowed are {', '.join(TARGETS)}")
    module, _, name = TARGETS[kind].partition(":")
    target: Target = getattr(import_module(module), name)(description)
    return target
