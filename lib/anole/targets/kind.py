"""A kind of target: what models.yaml may say of it, and how that becomes a description and a target.

Everything here is read before any compiler is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anole.node import Node
from anole.targets.rpc.address import Remote

if TYPE_CHECKING:
    from anole.targets.base import Device, Simulator


@dataclass(frozen=True)
class Inventory:
    """The hardware of one kind on this machine, as ``anole doctor`` lists it.

    Attributes:
        facts: short texts by their names.
        devices: descriptions of targets whose peak can be measured here, by the device's name.
    """

    facts: Mapping[str, str]
    devices: Mapping[str, Mapping[str, Any]]


def _nothing() -> Inventory:
    return Inventory({}, {})


@dataclass(frozen=True)
class Kind:
    """What the rest of Anole knows of a kind of target; its folder's `settings` module makes one.

    Attributes:
        keys: what an entry of ``targets`` may set, beside ``kind``, ``required`` and ``measure``.
        read: checks those settings and returns them as plain values. It is given the entry, of which only the keys are
            checked, and where candidates are measured unless on this machine; it raises SpecError.
        describe: returns the whole description of a target, in plain JSON values, from its settings as keyword
            arguments, and detects the rest; it raises TargetError where there can be no such target.
        target: makes the target of a description.
        measurable_elsewhere: whether candidates can be measured on another machine (``measure``).
        refinable: whether candidates can be tried within a network (``refine``), see
            `Target.observable`.
        inventory: returns the hardware of this kind on this machine; nothing for simulated hardware.
    """

    keys: tuple[str, ...]
    read: Callable[[Node, Remote | None], dict[str, Any]]
    describe: Callable[..., dict[str, Any]]
    target: Callable[[Mapping[str, Any]], Device | Simulator]
    measurable_elsewhere: bool = False
    refinable: bool = False
    inventory: Callable[[], Inventory] = _nothing


def plain_values(node: Node, keys: tuple[str, ...]) -> dict[str, Any]:
    """Returns those of an entry's values that are there, in the entry's order, unchecked."""
    return {key: setting.value for key, setting in node.mapping().items() if key in keys}
