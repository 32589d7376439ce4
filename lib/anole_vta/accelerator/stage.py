"""Write the Pareto front of accelerators for each network and, if there are several, for all networks together."""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path

import numpy as np

from anole.compiler.folder import replace_folder
from anole.config.entries import AcceleratorOrder
from anole.documents import layout
from anole.documents.manifest import read_listed_task, read_manifest
from anole.documents.receipt import Receipts, read_receipts
from anole.errors import BuildError, DocumentError
from anole.store.shard import read_shard
from anole.text_format import milliseconds, pluralize, times
from anole_vta.accelerator import FRONT
from anole_vta.accelerator.energy import TYPICAL_NM, unit_energies
from anole_vta.accelerator.fastest import FastestPrograms, fastest_programs
from anole_vta.accelerator.pareto import Points, front_mask, knee
from anole_vta.area import relative_area, relative_memory
from anole_vta.geometry import Geometry, vta_config
from anole_vta.simulator.timing import is_extrapolated

_log = logging.getLogger(__name__)

ALL_NETWORKS = "all networks"
"""The name of the front for all networks together."""

KNEES = {"time x area": (0, 1), "time x energy": (0, 2), "time x area x energy": (0, 1, 2)}
"""The marked points: the name of the product that a point minimizes, and the indices of the product's objectives."""

Designs = Mapping[Geometry, FastestPrograms]
"""The fastest programs of a network on each accelerator that runs all of its layers."""


@dataclass(frozen=True)
class Point:
    """The time, area and energy of an accelerator for one network or several.

    Attributes:
        cycles: the sum over all layers; for several networks, the weighted sum over them.
    """

    geometry: Geometry
    frequency_mhz: float
    cycles: float
    latency_s: float
    energy_j: float

    @property
    def objectives(self) -> tuple[float, float, float]:
        """The minimized objectives: seconds, area relative to VTA, and joules."""
        return self.latency_s, relative_area(self.geometry), self.energy_j


def explore(name: str, order: AcceleratorOrder, receipts: Iterable[Path], folder: Path) -> None:
    """Write the folder of an accelerator: `FRONT`, and ``points/`` with the ``vta_config.json`` of each point.

    Raises:
        DocumentError: a manifest, a task or a receipt is missing or broken.
        StoreError: a program has not been simulated, or a shard is corrupt.
        BuildError: no accelerator runs all layers, a network has no layers for it, or the folder cannot be written.
    """
    networks = _networks(order, read_receipts(receipts))
    points = {network: _points(order, {network: 1.0}, networks) for network in networks}
    if len(networks) > 1:
        points[ALL_NETWORKS] = _points(order, order.models, networks)
    fronts = {network: _front(network, choices) for network, choices in points.items()}
    with replace_folder(folder) as staging:
        (staging / FRONT).write_text(_format_table(fronts, order.settings.get("technology_nm")), encoding="utf-8")
        (staging / "points").mkdir()
        for point in {point.geometry: point for front in fronts.values() for point in front}.values():
            text = json.dumps(vta_config(point.geometry), indent=2) + "\n"
            (staging / "points" / f"{point.geometry.name}.json").write_text(text, encoding="utf-8")
    for network, front in fronts.items():
        _log_front(name, network, len(points[network]), front)


def _networks(order: AcceleratorOrder, receipts: Receipts) -> dict[str, Designs]:
    """Return the fastest programs of each network on each accelerator of all targets."""
    layers: dict[str, Designs] = {}
    networks: dict[str, Designs] = {}
    for model in sorted(order.models):  # orders read from files do not keep the order in models.yaml
        designs: dict[Geometry, FastestPrograms] = {}
        for target in order.targets:
            path = layout.manifest_path(model, target)
            manifest = read_manifest(path)
            if not manifest.weights:
                raise BuildError(f"{model}: the accelerator runs none of its layers; remove the model")
            for key in manifest.weights:
                if key not in receipts:
                    raise DocumentError(layout.task_path(key), "no receipt shows that it is tuned", "tune")
                if key not in layers:
                    receipt = receipts[key]
                    shard = read_shard(layout.SHARDS / key / f"{receipt.run_key}.jsonl")
                    trials = shard.trials[: receipt.trials]
                    layers[key] = fastest_programs(read_listed_task(path, key), trials, _technology_nm(order))
            designs |= _weighted_sums({key: float(n) for key, n in manifest.weights.items()}, layers)
        if not designs:
            raise BuildError(f"{model}: no accelerator of {', '.join(order.targets)} runs all of its layers")
        networks[model] = designs
    return networks


def _weighted_sums(weights: Mapping[str, float], layers: Mapping[str, Designs]) -> dict[Geometry, FastestPrograms]:
    """Return the weighted sums of layers on each accelerator that runs all of them."""
    first_layer, *other_layers = (layers[key] for key in weights)
    return {
        geometry: FastestPrograms(
            fsum(n * layers[key][geometry].cycles for key, n in weights.items()),
            np.sum([n * layers[key][geometry].accesses for key, n in weights.items()], axis=0),
        )
        for geometry in first_layer
        if all(geometry in layer for layer in other_layers)
    }


def _points(order: AcceleratorOrder, weights: Mapping[str, float], networks: Mapping[str, Designs]) -> list[Point]:
    """Return a point for each accelerator that runs all networks, weighted as given."""
    clocks = order.settings.get("frequency_mhz", {})
    frequency_mhz = next(iter(order.targets.values()))["frequency_mhz"]
    technology_nm = _technology_nm(order)
    points = []
    for geometry, programs in _weighted_sums(weights, networks).items():
        clock_mhz = clocks.get("x".join(map(str, geometry.block)), frequency_mhz)
        latency_s = programs.cycles / (1e6 * clock_mhz)
        energy_j = unit_energies(geometry, technology_nm).of(programs.accesses, latency_s)
        points.append(Point(geometry, clock_mhz, programs.cycles, latency_s, energy_j))
    return points


def _technology_nm(order: AcceleratorOrder) -> int:
    technology_nm: int = order.settings.get("technology_nm", TYPICAL_NM)
    return technology_nm


def _front(network: str, points: Sequence[Point]) -> list[Point]:
    """Return the points on the Pareto front, fastest first."""
    if not points:
        raise BuildError(f"{network}: no accelerator runs all layers")
    mask = front_mask(_objectives(points))
    return sorted(
        (point for point, is_kept in zip(points, mask, strict=True) if is_kept), key=lambda point: point.latency_s
    )


def _objectives(points: Sequence[Point]) -> Points:
    return np.array([point.objectives for point in points])


def knees_of(front: Sequence[Point]) -> dict[int, list[str]]:
    """Return, by the index of each marked point on the front, the names of the products that it minimizes."""
    names: dict[int, list[str]] = {}
    for name, factors in KNEES.items():
        names.setdefault(knee(_objectives(front)[:, factors]), []).append(name)
    return names


def _format_table(fronts: Mapping[str, Sequence[Point]], technology_nm: int | None) -> str:
    """Return the CSV table; energies are in millijoules if a process is given, otherwise relative to the lowest."""
    file = io.StringIO()
    energy = "relative_energy" if technology_nm is None else "energy_mj"
    columns = ("network", "accelerator", "block", "inp_kib", "wgt_kib", "acc_kib", "bus_bits", "frequency_mhz")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*columns, "area", "memory", "cycles", "latency_ms", energy, "knee", "checked"])
    for network, front in fronts.items():
        unit_j = 1e-3 if technology_nm is not None else min(point.energy_j for point in front)
        knees = knees_of(front)
        for number, point in enumerate(front):
            g = point.geometry
            kib = (size // 1024 for size in (g.inp_bytes, g.wgt_bytes, g.acc_bytes))
            costs = (relative_area(g), relative_memory(g), point.cycles, 1e3 * point.latency_s, point.energy_j / unit_j)
            area, memory, cycles, latency_ms, relative_energy = costs
            writer.writerow(
                (
                    *(network, g.name, "x".join(map(str, g.block)), *kib, 8 * g.bus_bytes, f"{point.frequency_mhz:g}"),
                    *(f"{area:.4f}", f"{memory:.4f}", f"{cycles:.0f}", f"{latency_ms:.6g}", f"{relative_energy:.5g}"),
                    *(" and ".join(knees.get(number, [])), "extrapolated" if is_extrapolated(g) else "RTL"),
                )
            )
    return file.getvalue()


def _log_front(name: str, network: str, n_points: int, front: Sequence[Point]) -> None:
    _log.info("%s: %s: %d of %s on the front", name, network, len(front), pluralize(n_points, "accelerator"))
    min_j = min(point.energy_j for point in front)
    for number, knees in knees_of(front).items():
        point = front[number]
        _log.info(
            "%s: %s: lowest %s: %s, %s ms, area %s, energy %s relative to the lowest%s",
            *(name, network, " and ".join(knees), point.geometry.name, milliseconds(point.latency_s)),
            *(times(relative_area(point.geometry)), times(point.energy_j / min_j)),
            ", extrapolated" if is_extrapolated(point.geometry) else "",
        )
