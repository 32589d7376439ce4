"""The settings of a VTA target in models.yaml, and the target description made from them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anole.errors import TargetError
from anole.node import Node
from anole.targets.kind import CONSTRAINED, OPEN, Exploration, Kind, described_space, plain_values
from anole_vta.area import BOUNDS, Bounds
from anole_vta.geometry import DEFAULT, Geometry

if TYPE_CHECKING:
    from anole_vta.target import VtaTarget

_BLOCK = re.compile(r"[1-9]\d*x[1-9]\d*x[1-9]\d*")

_MIN_MHZ, _MAX_MHZ = 1e-3, 1e6

TECHNOLOGIES_NM = (22, 32, 45, 65)
"""The process technologies with known energies (`anole_vta.accelerator.energy`)."""

_KEYS = ("geometry", "hardware", "frequency_mhz", "first_layer", "space", *BOUNDS)


def describe_vta(
    geometry: object = "default",
    hardware: object = "fixed",
    frequency_mhz: object = 100,
    first_layer: object = "host",
    space: object = CONSTRAINED,
    **bounds: object,
) -> dict[str, Any]:
    """Return the description of an accelerator.

    Args:
        geometry: ``default``, the name of a `Geometry`, or the fields that differ from VTA.
        hardware: ``fixed``, or ``search`` to also tune the GEMM block (batch x in x out) and the buffers.
        frequency_mhz: the clock, which converts exact cycles to seconds.
        first_layer: ``host`` or ``vta``: where a network's first convolution runs; its few channels fill no block.
        space: ``constrained``, or ``open`` to include configs that the accelerator cannot run; only ``open`` is
            in the description.
        bounds: the bounds of a search, see `Bounds`; the default ``penalty_form`` is not in the description.

    Raises:
        TargetError: a value is not allowed.
    """
    if bounds and hardware == "fixed":
        raise TargetError(f"{next(iter(bounds))}: is allowed only with `hardware: search`; this hardware is fixed")
    description = {
        "kind": "vta",
        "geometry": _read_geometry(geometry).to_json(),
        "hardware": _check_choice("hardware", hardware, ("fixed", "search")),
        "frequency_mhz": _check_positive("frequency_mhz", frequency_mhz),
        "first_layer": _check_choice("first_layer", first_layer, ("host", "vta")),
        **described_space(_check_choice("space", space, (CONSTRAINED, OPEN))),
    }
    if hardware == "search":
        *numbers, form = ((name, bounds.get(name, value)) for name, value in asdict(Bounds()).items())
        description |= {name: _check_positive(name, number) for name, number in numbers}
        if _check_choice(*form, ("difference", "share")) != "difference":
            description["penalty_form"] = form[1]
    return description


def _read_geometry(value: object) -> Geometry:
    if isinstance(value, Mapping):
        return Geometry.from_json(value)
    if not isinstance(value, str):
        raise TargetError(
            f"geometry: found {value!r}; allowed are default, a name such as {DEFAULT.name}, or a mapping"
        )
    return DEFAULT if value == "default" else Geometry.from_name(value)


def _check_choice(name: str, value: object, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise TargetError(f"{name}: found {value!r}; allowed are {', '.join(allowed)}")
    return str(value)


def _check_positive(name: str, value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= sys.float_info.max:
        raise TargetError(f"{name}: found {value!r}; use a positive number")
    return float(value)


def _target(description: Mapping[str, Any]) -> VtaTarget:
    from anole_vta.target import VtaTarget

    return VtaTarget(description)


def _read_exploration(entry: Mapping[str, Node], targets: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Check the settings of an entry of ``accelerators``, and that its targets differ in their geometry only."""
    descriptions = {name: describe_vta(**settings) for name, settings in targets.items()}
    common = [
        {key: value for key, value in d.items() if key not in ("geometry", *BOUNDS)} for d in descriptions.values()
    ]
    for name, description in zip(descriptions, common, strict=True):
        if description["hardware"] != "search" or "space" in description:
            raise TargetError(f"target {name}: only `hardware: search` in a constrained space can be explored")
        if description != common[0]:
            raise TargetError(f"target {name}: differs from {next(iter(descriptions))} in more than its geometry")
    settings: dict[str, Any] = {}
    if "frequency_mhz" in entry:
        clocks = entry["frequency_mhz"].mapping()
        for block, node in clocks.items():
            if not _BLOCK.fullmatch(block):
                raise node.error("is not a block; use the form 1x16x16")
        settings["frequency_mhz"] = {block: node.number(_MIN_MHZ, _MAX_MHZ) for block, node in clocks.items()}
    if "technology_nm" in entry:
        settings["technology_nm"] = entry["technology_nm"].whole(least=1)
        if settings["technology_nm"] not in TECHNOLOGIES_NM:
            allowed = ", ".join(map(str, TECHNOLOGIES_NM))
            raise entry["technology_nm"].error(f"found {settings['technology_nm']}; allowed are {allowed}")
    return settings


KIND = Kind(
    _KEYS,
    lambda node, _: plain_values(node, _KEYS),  # `describe_vta` checks them
    describe_vta,
    _target,
    commands={"vta": "anole_vta.commands:vta"},
    sections=tuple(f"anole_vta.pages.{name}:SECTION" for name in ("fronts", "utilization", "accelerators")),
    exploration=Exploration(
        ("frequency_mhz", "technology_nm"), _read_exploration, "anole_vta.accelerator.stage:explore"
    ),
    rules=Path(__file__).with_name("explore.smk"),
    precision_names={"float32": "int8"},
)
