"""A kind of target: the settings that models.yaml allows, and how they become a description and a target.

Everything here is read before any compiler is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anole.node import Node
from anole.record import Config
from anole.targets.base import Place
from anole.targets.rpc.address import Remote

if TYPE_CHECKING:
    from anole.targets.base import Device, Simulator

CONSTRAINED, OPEN = "constrained", "open"


@dataclass(frozen=True)
class Inventory:
    """The hardware of one kind on this machine, as ``anole doctor`` lists it: short facts by their names.

    `devices` holds descriptions of targets whose peak can be measured here, by the device's name.
    """

    facts: Mapping[str, str]
    devices: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Exploration:
    """How one accelerator is explored for several networks: the entries of ``accelerators`` in models.yaml.

    Attributes:
        keys: the settings of an entry beside its models and targets.
        read: checks an entry's settings and returns them as plain values. Its arguments are the settings that the entry
            has, and those of its targets by their names. It raises SpecError, or TargetError for a target.
        stage: the function that writes an accelerator's folder, as ``module:object``.
    """

    keys: tuple[str, ...]
    read: Callable[[Mapping[str, Node], Mapping[str, Mapping[str, Any]]], dict[str, Any]]
    stage: str


@dataclass(frozen=True)
class Rounding:
    """How a low-precision target rounds numbers that a network has in float32.

    Attributes:
        dtype: the type of the operands of products; None for float32.
        stores_weights: whether dense layers store weights in fewer bits, of which `Target.narrowed` decides.
    """

    dtype: str | None = None
    stores_weights: bool = False


@dataclass(frozen=True)
class Kind:
    """Everything that the rest of Anole knows about a kind of target; the `settings` module of its folder makes one.

    Attributes:
        keys: the settings that an entry of ``targets`` may have, beside ``kind``, ``required``, ``nodes`` and
            ``measure``.
        read: checks an entry's settings and returns them as plain values. Its arguments are the entry, whose keys are
            checked already, and the other machine that measures candidates, or None for this one. It raises SpecError.
        describe: takes the settings as keyword arguments, detects the rest, and returns the target's whole description
            in plain JSON values. It raises TargetError where there can be no such target.
        target: makes the target of a description.
        detected: the settings that `describe` detects on this machine where they are left out.
        place: where candidates run; asked only of a kind with detected settings, before there is a description.
        measurable_elsewhere: whether another machine can measure candidates (``measure``).
        observable: whether its targets are `ProfilableDevice`, which profiling and refining (``refine``) need.
        inventory: returns the hardware of this kind on this machine; nothing for simulated hardware.
        commands: the click commands that it adds to `anole`, as ``module:object`` by their names.
        sections: the sections that it adds to the report, each an `anole.report.pages.figure.Section` as
            ``module:object``.
        exploration: how its hardware is explored, if that can be searched.
        remedy: what a user can set if outputs of a build with some configs differ by rounding, as the end of a message;
            empty if nothing.
        finer: a function like `anole.targets.shared.output_tiles.finer_tiles`, as ``module:object``, if some configs
            round more than the definition of an operator.
        rounding: how a described target rounds; None for float32.
        exporter: a function like `anole.export.stage.export_build`, as ``module:object``, if builds can be exported.
        rules: the file of rules that it adds to the workflow, which sees everything in ``rules/common.smk``.
        multiplies: what people call the types that its kernels multiply, by TVM's names; others keep these.
        quantizes_models: whether targets with some settings are for models in 8 bits, to which others are quantized.
        serves_ranges: whether one build serves ranges of sizes (``{batch: 1..16}``).
    """

    keys: tuple[str, ...]
    read: Callable[[Node, Remote | None], dict[str, Any]]
    describe: Callable[..., dict[str, Any]]
    target: Callable[[Mapping[str, Any]], Device | Simulator]
    detected: tuple[str, ...] = ()
    place: Place = Place.PROCESSOR
    measurable_elsewhere: bool = False
    observable: bool = False
    inventory: Callable[[], Inventory] = lambda: Inventory({}, {})
    commands: Mapping[str, str] = field(default_factory=dict, hash=False)
    sections: tuple[str, ...] = ()
    exploration: Exploration | None = None
    finer: str | None = None
    rounding: Callable[[Mapping[str, Any]], Rounding | None] = lambda _: None
    exporter: str | None = None
    rules: Path | None = None
    multiplies: Mapping[str, str] = field(default_factory=dict, hash=False)
    remedy: Callable[[Sequence[Config]], str] = lambda _: ""
    quantizes_models: Callable[[Mapping[str, Any]], bool] = lambda _: False
    serves_ranges: bool = False


def read_space(entry: Mapping[str, Node]) -> None:
    """Check the setting ``space`` of an entry of ``targets``, if it has it; raises SpecError.

    It says whether tuners search what experts left of a space, or all of it.
    """
    if "space" in entry:
        entry["space"].choice((CONSTRAINED, OPEN), "a kind of space")


def described_space(space: str) -> dict[str, str]:
    """Return what a description says of the setting: nothing of the default, so that it changes no task's key."""
    return {} if space == CONSTRAINED else {"space": space}


def is_open(description: Mapping[str, Any]) -> bool:
    """Whether a description asks for open spaces."""
    return description.get("space") == OPEN


def plain_values(node: Node, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return the values of an entry that are among the keys, in the entry's order, without checking them."""
    return {key: setting.value for key, setting in node.mapping().items() if key in keys}
