"""The setting ``space`` of a target: whether tuners search what experts left of a space, or all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anole.node import Node

CONSTRAINED, OPEN = "constrained", "open"


def read_space(entry: Mapping[str, Node]) -> None:
    """Checks the setting of an entry of ``targets``, if it has it.

    Raises:
        SpecError: its value is not allowed.
    """
    if "space" in entry:
        entry["space"].choice((CONSTRAINED, OPEN), "a kind of space")


def described_space(space: str) -> dict[str, str]:
    """Returns what a description says of the setting: nothing of the default, so that it changes no task's key."""
    return {} if space == CONSTRAINED else {"space": space}


def is_open(description: Mapping[str, Any]) -> bool:
    """Returns whether a description asks for open spaces."""
    return description.get("space") == OPEN
