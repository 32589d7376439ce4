"""A kind of target: the settings that models.yaml allows, and how they become a description and a target.

It must not import a compiler, because models.yaml is read before any compiler is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anole.node import Node
from anole.record import Config
from anole.targets.base import DeviceLocation
from anole.targets.rpc.address import Remote

if TYPE_CHECKING:
    from anole.targets.base import Device, Simulator

CONSTRAINED, OPEN = "constrained", "open"


@dataclass(frozen=True)
class Inventory:
    """The hardware of one kind on this machine, as ``anole doctor`` lists it.

    Attributes:
        facts: short facts by their names.
        devices: descriptions of targets whose peak can be measured on this machine, by device name.
    """

    facts: Mapping[str, str]
    devices: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Exploration:
    """How one accelerator is explored for several networks: the entries of ``accelerators`` in models.yaml.

    Attributes:
        setting_names: the settings of an entry besides its models and targets.
        read: checks an entry's settings and returns them as plain values. Its arguments are the entry's settings, and
            the settings of its targets by name. It raises SpecError, or TargetError for a target.
        stage: the function that writes an accelerator's folder, as ``module:object``.
    """

    setting_names: tuple[str, ...]
    read: Callable[[Mapping[str, Node], Mapping[str, Mapping[str, Any]]], dict[str, Any]]
    stage: str


@dataclass(frozen=True)
class Rounding:
    """How a low-precision target rounds a network's float32 values.

    Attributes:
        dtype: the type of the operands of convolutions and matrix products; None for float32.
        low_precision_weights: whether dense layers may store weights in fewer bits; see `Target.in_target_precision`.
    """

    dtype: str | None = None
    low_precision_weights: bool = False


@dataclass(frozen=True)
class Kind:
    """Everything that the rest of Anole knows about a kind of target, defined in the `settings` module of its folder.

    Attributes:
        setting_names: the settings that an entry of ``targets`` may have, besides ``kind``, ``required``, ``nodes``
            and ``measure``.
        read: checks an entry's settings and returns them as plain values. Its arguments are the entry, whose names are
            already checked, and the remote devices that run candidates, or None for this machine. It raises SpecError.
        describe: takes the settings as keyword arguments, detects the rest, and returns the target's full description
            in plain JSON values. It raises TargetError if there can be no such target.
        target: returns the target of a description.
        detected: the settings that `describe` detects on this machine unless they are given.
        location: where candidates run, for jobs that start before a target is described, as on a cluster's nodes.
            Once there is a description, `Target.location` counts.
        measurable_elsewhere: whether another machine can measure candidates (``measure``).
        profilable: whether the targets are `ProfilableDevice`, which profiling and refining (``refine``) need.
        inventory: returns the hardware of this kind on this machine; by default an empty Inventory.
        commands: the click commands that the kind adds to `anole`, as ``module:object``, by name.
        sections: the sections that the kind adds to the report, each an `anole.report.pages.figure.Section` as
            ``module:object``.
        exploration: how designs of the hardware are explored; None if they cannot be.
        rounding_remedy: takes a build's configs, and returns the end of a message that advises how to reduce rounding
            errors, or "" if there is no way.
        finer_tiles: a function like `anole.targets.shared.output_tiles.finer_tiles`, as ``module:object``; None if no
            config rounds worse than a direct computation.
        rounding: returns how a described target rounds; None for float32.
        exporter: a function like `anole.export.stage.export_build`, as ``module:object``, if builds can be exported.
        rules: the Snakemake file that the kind adds to the workflow; it can use everything in ``rules/common.smk``.
        precision_names: how output calls a type that kernels multiply, by TVM's name of the type, if they differ.
        quantizes_models: whether a target with the given settings runs models in 8 bits, so float models are quantized.
        serves_ranges: whether one build can serve a range of sizes (``{batch: 1..16}``).
    """

    setting_names: tuple[str, ...]
    read: Callable[[Node, Remote | None], dict[str, Any]]
    describe: Callable[..., dict[str, Any]]
    target: Callable[[Mapping[str, Any]], Device | Simulator]
    detected: tuple[str, ...] = ()
    location: DeviceLocation = DeviceLocation.PROCESSOR
    measurable_elsewhere: bool = False
    profilable: bool = False
    inventory: Callable[[], Inventory] = lambda: Inventory({}, {})
    commands: Mapping[str, str] = field(default_factory=dict, hash=False)
    sections: tuple[str, ...] = ()
    exploration: Exploration | None = None
    finer_tiles: str | None = None
    rounding: Callable[[Mapping[str, Any]], Rounding | None] = lambda _: None
    exporter: str | None = None
    rules: Path | None = None
    precision_names: Mapping[str, str] = field(default_factory=dict, hash=False)
    rounding_remedy: Callable[[Sequence[Config]], str] = lambda _: ""
    quantizes_models: Callable[[Mapping[str, Any]], bool] = lambda _: False
    serves_ranges: bool = False


def check_space(entry: Mapping[str, Node]) -> None:
    """Check an entry's optional setting ``space``; raise SpecError if it is invalid.

    It selects between the space that experts constrained and the full, open space.
    """
    if "space" in entry:
        entry["space"].choice((CONSTRAINED, OPEN), "a kind of space")


def described_space(space: str) -> dict[str, str]:
    """Return the setting's entry in a description; the default has no entry, which keeps the keys of existing tasks."""
    return {} if space == CONSTRAINED else {"space": space}


def is_open(description: Mapping[str, Any]) -> bool:
    """Whether a description asks for open spaces."""
    return description.get("space") == OPEN


def plain_values(node: Node, names: tuple[str, ...]) -> dict[str, Any]:
    """Return an entry's settings with the given names, in the entry's order, unchecked."""
    return {name: setting.value for name, setting in node.mapping().items() if name in names}
