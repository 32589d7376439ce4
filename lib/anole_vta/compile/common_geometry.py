"""Choose one accelerator for an entire network: the geometry within the bounds with the lowest total latency.

Two layers are rarely tried on exactly the same accelerator, because buffer sizes are also searched. The fastest configs
of a layer are therefore also simulated on geometries with the same GEMM block (batch x in x out) but other buffers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from anole.compiler.matching import Match
from anole.documents.receipt import Receipt, Receipts
from anole.errors import BuildError, ConfigError
from anole.record import Config
from anole_vta.area import relative_area, relative_memory
from anole_vta.geometry import Geometry
from anole_vta.section import AcceleratorCandidate
from anole_vta.target import VtaTarget
from anole_vta.templates.design import hardware_config

_UNTRIED = "no trial had the network's geometry"
_SLOWER = "no trial was faster than the default config"

_MAX_GEOMETRIES = 16
"""The maximum number of geometries on which all layers are simulated."""

_MAX_MOVED_CONFIGS = 4
"""The maximum number of configs of a layer that are simulated with other buffers than in their trials."""


@dataclass(frozen=True)
class ChosenGeometry:
    """A geometry, and the config of each layer on it.

    Attributes:
        candidates: the considered geometries; None if the hardware is fixed.
        per_layer_latency_s: total seconds if every layer had its own best geometry; None if the hardware is fixed.
    """

    geometry: Geometry
    matches: list[Match]
    candidates: tuple[AcceleratorCandidate, ...] | None = None
    per_layer_latency_s: float | None = None


def choose_geometry(target: VtaTarget, matches: Sequence[Match], receipts: Receipts) -> ChosenGeometry:
    """Return a network's geometry: the given one, or the fastest of the tried geometries with the lowest estimates.

    On each geometry, a layer gets the fastest tried config, or the default config if that is faster in simulation. A
    locked layer keeps its config, which also fixes the geometry of the network.

    The receipts, by task key, hold the fastest config for each geometry.

    Raises:
        BuildError: no tried geometry is within the bounds and runs all layers.
    """
    designs = {match.task.key: _designs(target, match, receipts.get(match.task.key)) for match in matches}
    locked = [target.geometry_of(match.config) for match in matches if match.locked and match.config is not None]
    geometries = [target.geometry, *(design.geometry for layer in designs.values() for design in layer)]
    distinct = dict.fromkeys(locked or geometries)
    bounds = target.bounds
    allowed = [geometry for geometry in distinct if bounds is None or not bounds.excess(geometry)]
    candidates = []
    for geometry in _rank_by_estimate(allowed, target, matches, designs):
        with suppress(ConfigError):
            layers = [_adapt_match(geometry, match, designs[match.task.key], target) for match in matches]
            candidates.append((geometry, layers))
    if not candidates:
        raise BuildError(f"none of the {len(distinct)} tried geometries is within the bounds and runs all layers")
    candidates.sort(key=lambda candidate: _total_s(candidate[1]))
    if bounds is None:
        return ChosenGeometry(*candidates[0])
    per_layer_s = 0.0
    for n, match in enumerate(matches):
        latencies_s = [design.latency_s for design in designs[match.task.key] if design.geometry in allowed]
        per_layer_s += match.weight * min(*latencies_s, *(_latency_s(layers[n]) for _, layers in candidates), math.inf)
    summaries = (
        AcceleratorCandidate(geometry.block, relative_area(geometry), relative_memory(geometry), _total_s(layers))
        for geometry, layers in candidates
    )
    return ChosenGeometry(*candidates[0], tuple(summaries), per_layer_s)


@dataclass(frozen=True)
class _Design:
    """A tried config of a layer, and the geometry that it selects."""

    geometry: Geometry
    config: Config
    latency_s: float


def _rank_by_estimate(
    geometries: Sequence[Geometry],
    target: VtaTarget,
    matches: Sequence[Match],
    designs: Mapping[str, Sequence[_Design]],
) -> list[Geometry]:
    """Return at most `_MAX_GEOMETRIES` geometries with the lowest estimated latency, infinite if a layer cannot run.

    A layer is estimated by its lowest latency with the same block and any buffers, or by its default config.
    """
    if len(geometries) <= _MAX_GEOMETRIES:
        return list(geometries)
    min_s: dict[tuple[str, tuple[int, ...]], float] = {}
    for key, layer_designs in designs.items():
        for design in layer_designs:
            at = key, design.geometry.block
            min_s[at] = min(design.latency_s, min_s.get(at, math.inf))

    def estimate_s(geometry: Geometry) -> float:
        vta = target.with_geometry(geometry)
        total_s = 0.0
        for match in matches:
            layer_s = min_s.get((match.task.key, geometry.block))
            if layer_s is None:
                try:
                    layer_s = vta.simulate(match.task.workload, vta.default_config(match.task.workload))
                except ConfigError:
                    return math.inf
            total_s += match.weight * layer_s
        return total_s

    # Of equal estimates, prefer more memory, which allows larger tiles.
    ranked = sorted(geometries, key=lambda geometry: (estimate_s(geometry), -geometry.sram_bits))
    return ranked[:_MAX_GEOMETRIES]


def _designs(target: VtaTarget, match: Match, receipt: Receipt | None) -> list[_Design]:
    """Return the fastest config of a layer for each geometry on which it was tried, fastest first."""
    if receipt is None:
        return []
    if target.bounds is None:
        if match.reason is not None or receipt.config is None or receipt.latency_s is None:
            return []
        return [_Design(target.geometry, receipt.config, receipt.latency_s)]
    designs = [_Design(target.geometry_of(d.config), d.config, d.latency_s) for d in receipt.designs]
    return sorted(designs, key=lambda design: design.latency_s)


def _adapt_match(geometry: Geometry, match: Match, designs: Sequence[_Design], target: VtaTarget) -> Match:
    """Return a layer with its config on a geometry, or the default config if faster; raise ConfigError if none runs."""
    vta = target.with_geometry(geometry)
    if match.locked and match.config is not None:
        if target.geometry_of(match.config) != geometry:
            raise ConfigError("the layer is locked to another geometry")
        return replace(match, latency_s=vta.simulate(match.task.workload, match.config))
    design = min(_simulate_designs(vta, match, designs), key=lambda design: design.latency_s, default=None)
    try:
        config = vta.default_config(match.task.workload)
        default_s = vta.simulate(match.task.workload, config)
    except ConfigError:
        if design is None:
            raise
        default_s = math.inf
    if design is not None and design.latency_s <= default_s:
        return replace(match, config=design.config, latency_s=design.latency_s, reason=None)
    reason = match.reason or (_UNTRIED if design is None else _SLOWER)
    return replace(match.as_untuned(reason, config), latency_s=default_s)


def _simulate_designs(vta: VtaTarget, match: Match, designs: Sequence[_Design]) -> Iterator[_Design]:
    """Yield the designs tried on an accelerator, and the fastest designs of other accelerators with the same block.

    The latter are simulated with this accelerator's buffers; smaller buffers make a config use smaller tiles.
    """
    yield from (design for design in designs if design.geometry == vta.geometry)
    same_block = (design for design in designs if design.geometry.block == vta.geometry.block)
    for design in islice((design for design in same_block if design.geometry != vta.geometry), _MAX_MOVED_CONFIGS):
        config = {**design.config, **hardware_config(vta.geometry)}
        with suppress(ConfigError):
            yield _Design(vta.geometry, config, vta.simulate(match.task.workload, config))


def _latency_s(match: Match) -> float:
    assert match.latency_s is not None, "simulated layers have a latency"
    return match.latency_s


def _total_s(matches: Sequence[Match]) -> float:
    return sum(match.weight * _latency_s(match) for match in matches)
