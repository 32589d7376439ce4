"""The settings of an accelerator target in models.yaml, and the description made from them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from anole.errors import TargetError
from anole.targets.kind import CONSTRAINED, OPEN, Kind, described_space, plain_values
from anole.targets.vta.area import BOUNDS, Bounds
from anole.targets.vta.geometry import Geometry

if TYPE_CHECKING:
    from anole.targets.vta.target import VtaTarget

_KEYS = ("geometry", "hardware", "frequency_mhz", "first_layer", "space", *BOUNDS)


def describe_vta(
    geometry: object = "default",
    hardware: object = "fixed",
    frequency_mhz: object = 100,
    first_layer: object = "host",
    space: object = CONSTRAINED,
    **bounds: object,
) -> dict[str, Any]:
    """Returns the description of an accelerator.

    Args:
        geometry: ``default``, or fields of `Geometry` that differ from VTA's own.
        hardware: ``fixed``, or ``search`` for another block of the matrix unit and other buffers.
        frequency_mhz: the clock's frequency; cycles are exact, and seconds follow from it.
        first_layer: ``host`` or ``vta``: where a network's first convolution runs; its few channels fill no block.
        space: ``constrained``, or ``open`` for spaces that also hold what the accelerator cannot run; described only
            if it is open.
        bounds: the bounds of a search, see `Bounds`; the ``penalty_form`` is described only if it is not the default.

    Raises:
        TargetError: a value is not allowed.
    """
    fields = {} if geometry == "default" else geometry
    if not isinstance(fields, Mapping):
        raise TargetError(f"geometry: found {geometry!r}; allowed are default, or a mapping")
    if bounds and hardware == "fixed":
        raise TargetError(f"{next(iter(bounds))}: is for `hardware: search`; this hardware is fixed")
    description = {
        "kind": "vta",
        "geometry": Geometry.from_json(fields).to_json(),
        "hardware": _choice("hardware", hardware, ("fixed", "search")),
        "frequency_mhz": _positive("frequency_mhz", frequency_mhz),
        "first_layer": _choice("first_layer", first_layer, ("host", "vta")),
        **described_space(_choice("space", space, (CONSTRAINED, OPEN))),
    }
    if hardware == "search":
        *numbers, form = ((name, bounds.get(name, value)) for name, value in asdict(Bounds()).items())
        description |= {name: _positive(name, found) for name, found in numbers}
        if _choice(*form, ("difference", "share")) != "difference":
            description["penalty_form"] = form[1]
    return description


def _choice(name: str, found: object, allowed: tuple[str, ...]) -> str:
    if found not in allowed:
        raise TargetError(f"{name}: found {found!r}; allowed are {', '.join(allowed)}")
    return str(found)


def _positive(name: str, found: object) -> float:
    if not isinstance(found, (int, float)) or isinstance(found, bool) or not 0 < found <= sys.float_info.max:
        raise TargetError(f"{name}: found {found!r}; a number above 0 is expected")
    return float(found)


def _target(description: Mapping[str, Any]) -> VtaTarget:
    from anole.targets.vta.target import VtaTarget

    return VtaTarget(description)


KIND = Kind(
    _KEYS,
    lambda node, _: plain_values(node, _KEYS),  # which `describe_vta` checks
    describe_vta,
    _target,
    commands={"vta": "anole.targets.vta.commands:vta"},
    sections=tuple(f"anole.targets.vta.pages.{name}:SECTION" for name in ("fronts", "utilisation", "accelerators")),
)
