"""Chooses one accelerator for a whole network: the geometry within the bounds with the least total latency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from anole.compile.matching import Match
from anole.documents.build import AcceleratorCandidate
from anole.documents.receipt import Receipt, Receipts
from anole.errors import BuildError, ConfigError
from anole.record import Config
from anole.targets.vta.area import relative_area, relative_memory
from anole.targets.vta.geometry import Geometry
from anole.targets.vta.target import VtaTarget

_UNTRIED = "no trial had the network's geometry"
_SLOWER = "no trial was faster than the default config"


@dataclass(frozen=True)
class Chosen:
    """A geometry, and the config of each layer on it.

    Attributes:
        candidates: the considered geometries; None if the hardware is fixed.
        per_layer_latency_s: total seconds if every layer had its own best geometry; None if the hardware is fixed.
    """

    geometry: Geometry
    matches: list[Match]
    candidates: tuple[AcceleratorCandidate, ...] | None = None
    per_layer_latency_s: float | None = None


def choose_geometry(target: VtaTarget, matches: Sequence[Match], receipts: Receipts) -> Chosen:
    """Returns a network's geometry: the given one, or the best of all on which its layers were tried.

    On each geometry, a layer has the fastest tried config, or the simulated default config if that is faster. A locked
    layer has its own config, and the network its geometry.

    Args:
        target: the target to compile for.
        matches: the layers, each with its own best config.
        receipts: by task key, with the fastest config of each geometry.

    Raises:
        BuildError: no tried geometry is within the bounds and runs all layers.
    """
    designs = {match.task.key: _designs(target, match, receipts.get(match.task.key)) for match in matches}
    locked = [target.geometry_of(match.config) for match in matches if match.locked and match.config is not None]
    others = [target.geometry, *(geometry for each in designs.values() for geometry in each)]
    tried = dict.fromkeys(locked or others)
    candidates = []
    for geometry in tried:
        if _allowed(target, geometry):
            try:
                layers = [_on(geometry, match, designs[match.task.key].get(geometry), target) for match in matches]
            except ConfigError:
                continue
            candidates.append((geometry, layers))
    if not candidates:
        raise BuildError(f"none of the {len(tried)} tried geometries is within the bounds and runs all layers")
    candidates.sort(key=lambda candidate: _total_s(candidate[1]))
    if target.bounds is None:
        return Chosen(*candidates[0])
    best_of_each = (min(_latency_s(layers[n]) for _, layers in candidates) for n in range(len(matches)))
    per_layer_s = sum(match.weight * least_s for match, least_s in zip(matches, best_of_each, strict=True))
    described = tuple(_described(geometry, _total_s(layers)) for geometry, layers in candidates)
    return Chosen(*candidates[0], described, per_layer_s)


def _allowed(target: VtaTarget, geometry: Geometry) -> bool:
    return target.bounds is None or not target.bounds.excess(geometry)


def _designs(target: VtaTarget, match: Match, receipt: Receipt | None) -> dict[Geometry, tuple[Config, float]]:
    """Returns the fastest config, and its latency in seconds, on each geometry on which a layer was tried."""
    if receipt is None:
        return {}
    if target.bounds is None:
        if match.reason is not None or receipt.config is None or receipt.latency_s is None:
            return {}
        return {target.geometry: (receipt.config, receipt.latency_s)}
    return {target.geometry_of(each.config): (each.config, each.latency_s) for each in receipt.designs}


def _on(geometry: Geometry, match: Match, design: tuple[Config, float] | None, target: VtaTarget) -> Match:
    """Returns a layer on a geometry, with the default config if that is faster than the tried ones.

    Raises:
        ConfigError: the layer cannot run there.
    """
    there = target.with_geometry(geometry)
    if match.locked and match.config is not None:
        if target.geometry_of(match.config) != geometry:
            raise ConfigError("it is locked to another geometry")
        return replace(match, latency_s=there.simulate(match.task.workload, match.config))
    try:
        config = there.default_config(match.task.workload)
        default_s = there.simulate(match.task.workload, config)
    except ConfigError:
        if design is None:
            raise
        default_s = math.inf
    if design is not None and design[1] <= default_s:
        return replace(match, config=design[0], latency_s=design[1], reason=None)
    reason = match.reason or (_UNTRIED if design is None else _SLOWER)
    return replace(match.untuned(reason, config), latency_s=default_s)


def _latency_s(match: Match) -> float:
    assert match.latency_s is not None, "what is simulated has a latency"
    return match.latency_s


def _total_s(matches: Sequence[Match]) -> float:
    return sum(match.weight * _latency_s(match) for match in matches)


def _described(geometry: Geometry, latency_s: float) -> AcceleratorCandidate:
    block = (geometry.batch, geometry.block_in, geometry.block_out)
    return AcceleratorCandidate(block, relative_area(geometry), relative_memory(geometry), latency_s)
