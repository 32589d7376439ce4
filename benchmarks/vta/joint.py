"""Compare search methods for an accelerator's Pareto front with the exact one, by simulated programs, as CSV.

    python -m benchmarks.vta.joint PROJECT ACCELERATOR NETWORK > docs/results/data/accelerator_search.csv

The space is the product of the accelerator and the schedules of all layers of a network. In PROJECT, all programs of
the layers have been simulated (an entry of ``accelerators``, one target), so searches only look cycles up. The score of
a search depends on its simulated programs: on each accelerator, each layer gets the fastest of them that fits, and the
score is the hypervolume of the resulting front relative to the exact one, for every method. The objectives are time,
area and energy.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anole import bench
from anole.bench.ask_tell import replay
from anole.documents import layout
from anole.documents.manifest import read_listed_task, read_manifest
from anole.documents.receipt import read_receipts
from anole.project.pipeline import find_accelerator
from anole.record import Trial
from anole.search.presets import PRESETS
from anole.space.knob import Knob
from anole.space.space import Space
from anole.store.shard import read_shard
from anole.task import Task
from anole_vta.accelerator.accesses import COUNTED, accesses_of
from anole_vta.accelerator.energy import unit_energies
from anole_vta.accelerator.pareto import Points, knee, on_front
from anole_vta.area import relative_area
from anole_vta.geometry import Geometry
from anole_vta.target import VtaTarget, as_conv2d
from anole_vta.templates.conv2d import lower_conv2d
from anole_vta.templates.design import (
    EPILOGUE,
    HARDWARE,
    design_of,
    geometry_of,
    hardware_config,
    padded_to_blocks,
    tiles_of,
)
from anole_vta.templates.estimates import min_cycles
from benchmarks.common.arguments import described
from benchmarks.common.rows import print_rows
from kit.hypervolume import hypervolume

SEEDS = 10
SHARES = (0.0025, 0.005, 0.01, 0.02, 0.05, 0.1)
"""The shares of all programs after which a search is scored."""

COLUMNS = ("network", "method", "seed", "programs", "share", "hypervolume", "search_s")
_POPULATION = 32
_WORST = 100.0
"""The logarithm of all objectives of designs that cannot run."""

_SCALE_STEP, _MIN_SCALE = 0.9, 0.2

Simulated = tuple[int, int]
"""The index of a layer, and of one of its programs."""


@dataclass(frozen=True, eq=False)
class Layer:
    """All configs of a layer, one for each pair of a program and an accelerator.

    Attributes:
        weight: the number of runs in the network.
        accelerators, programs: the indices of each config's accelerator and program, shape (n,).
        joules: the energy of each config's accesses, which breaks ties, shape (n,).
        estimated: the cycles of each config by a roofline, shape (n,).
        cycles: of each program, shape (n_programs,); infinity if it cannot be lowered.
        accesses: of each program, shape (n_programs, n_counted).
    """

    task: Task
    space: Space
    weight: float
    indices: NDArray[np.int64]
    accelerators: NDArray[np.int64]
    programs: NDArray[np.int64]
    joules: NDArray[np.float64]
    estimated: NDArray[np.float64]
    cycles: NDArray[np.float64]
    accesses: NDArray[np.float64]

    @cached_property
    def schedule(self) -> Sequence[Knob]:
        """The knobs of the schedule."""
        return [knob for knob in self.space.knobs if knob.agent != "hardware"]

    @cached_property
    def _columns(self) -> NDArray[np.int64]:
        """The values of `schedule` in each config, shape (n, n_knobs)."""
        columns = self.space.columns(self.space.vectors(self.indices))
        return np.stack([columns[knob.name] for knob in self.schedule], axis=1)

    @cached_property
    def _rows(self) -> Sequence[NDArray[np.int64]]:
        order = np.argsort(self.accelerators, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.accelerators))[:-1])

    def rows_of(self, accelerator: int) -> NDArray[np.int64]:
        """Return the indices of all configs on an accelerator."""
        return self._rows[accelerator] if accelerator < len(self._rows) else np.empty(0, np.int64)

    def repaired(self, values: Sequence[int], accelerator: int) -> int:
        """Return the program on an accelerator whose schedule differs from `values` in the fewest knobs."""
        rows = self.rows_of(accelerator)
        return int(self.programs[rows[np.argmin((self._columns[rows] != values).sum(axis=1))]])

    def best(self, costs: NDArray[np.float64], n_accelerators: int) -> NDArray[np.int64]:
        """Return the index of the cheapest config on each accelerator, shape (n_accelerators,); -1 for none."""
        found = np.full(n_accelerators, -1)
        rows = np.flatnonzero(np.isfinite(costs))
        order = rows[np.lexsort((self.joules[rows], costs[rows], self.accelerators[rows]))]
        first = np.append(True, np.diff(self.accelerators[order]) != 0) if len(order) else np.empty(0, bool)
        found[self.accelerators[order[first]]] = order[first]
        return found


@dataclass(frozen=True, eq=False)
class Problem:
    """A network on all accelerators of a target."""

    layers: Sequence[Layer]
    accelerators: Sequence[Geometry]
    frequency_hz: float

    @cached_property
    def common(self) -> Sequence[int]:
        """The indices of the accelerators that run all layers."""
        return [at for at in range(len(self.accelerators)) if all(len(layer.rows_of(at)) for layer in self.layers)]

    @cached_property
    def areas(self) -> NDArray[np.float64]:
        """The area of each accelerator relative to VTA, shape (n_accelerators,)."""
        return np.array([relative_area(each) for each in self.accelerators])

    @cached_property
    def energies(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Joules per access, shape (n_accelerators, n_counted), and leakage in watts, shape (n_accelerators,)."""
        each = [unit_energies(accelerator) for accelerator in self.accelerators]
        return np.array([energies.each_j for energies in each]), np.array([energies.standing_w for energies in each])

    @property
    def n_programs(self) -> int:
        """The number of all programs of all layers."""
        return sum(len(layer.cycles) for layer in self.layers)

    def points(self, costs: Sequence[NDArray[np.float64]]) -> tuple[Points, list[NDArray[np.int64]]]:
        """Return seconds, area and joules on each accelerator if configs take these cycles, and each layer's config.

        Configs with infinite cycles are excluded.
        """
        n = len(self.accelerators)
        total, accesses, rows = np.zeros(n), np.zeros((n, len(COUNTED))), []
        for layer, own in zip(self.layers, costs, strict=True):
            best = layer.best(own, n)
            total += layer.weight * np.where(best < 0, np.inf, own[best])
            accesses += layer.weight * layer.accesses[layer.programs[best]]
            rows.append(best)
        latencies_s = total / self.frequency_hz
        each_j, standing_w = self.energies
        joules = np.where(np.isfinite(total), (accesses * each_j).sum(axis=1) + standing_w * latencies_s, np.inf)
        return np.stack([latencies_s, self.areas, joules], axis=1), rows

    def known(self, simulated: Sequence[NDArray[np.bool_]]) -> list[NDArray[np.float64]]:
        """Return the cycles of the configs with simulated programs; infinity for others."""
        return [
            np.where(known[layer.programs], layer.cycles[layer.programs], np.inf)
            for layer, known in zip(self.layers, simulated, strict=True)
        ]

    @cached_property
    def front(self) -> Points:
        """The exact Pareto front."""
        points, _ = self.points([layer.cycles[layer.programs] for layer in self.layers])
        return points[on_front(points)]

    def score(self, simulated: Sequence[NDArray[np.bool_]]) -> float:
        """Return the hypervolume that simulated programs reach, relative to the exact front."""
        points, _ = self.points(self.known(simulated))
        return hypervolume(points[on_front(points)], self.front)


def main() -> None:
    """Print a row for each method, seed and number of programs."""
    parser = described(__doc__)
    parser.add_argument("project", type=Path)
    parser.add_argument("accelerator")
    parser.add_argument("network")
    given = parser.parse_args()
    os.chdir(given.project)
    print_rows(COLUMNS, measure(load(given.accelerator, given.network), given.network))


def measure(problem: Problem, network: str, seeds: int = SEEDS) -> Iterator[Mapping[str, object]]:
    """Yield the score of each method after each share of all programs."""
    for method, search in METHODS.items():
        for seed in range(1 if method in DETERMINISTIC else seeds):
            simulated = [np.zeros(len(layer.cycles), dtype=bool) for layer in problem.layers]
            n_done, wanted, began_s = (
                0,
                [math.ceil(share * problem.n_programs) for share in SHARES],
                time.process_time(),
            )
            for layer, program in search(problem, np.random.default_rng(seed), simulated):
                n_done += not simulated[layer][program]
                simulated[layer][program] = True
                if n_done < wanted[0]:
                    continue
                taken_s = time.process_time() - began_s
                score = problem.score(simulated)
                yield {
                    **{"network": network, "method": method, "seed": seed, "programs": n_done},
                    **{"share": f"{n_done / problem.n_programs:.5f}", "hypervolume": f"{score:.5f}"},
                    "search_s": f"{taken_s:.1f}",
                }
                began_s += time.process_time() - began_s - taken_s
                if not (wanted := wanted[1:]):
                    break


def load(accelerator: str, network: str) -> Problem:
    """Load a network on all accelerators of a target, from the project in the current folder."""
    order, paths = find_accelerator(Path("models.yaml"), accelerator)
    (target,) = order.targets
    receipts, path = read_receipts(paths), layout.manifest_path(network, target)
    found = []
    for key, weight in read_manifest(path).weights.items():
        shard = read_shard(layout.SHARDS / key / f"{receipts[key].run_key}.jsonl")
        found.append((read_listed_task(path, key), float(weight), shard.trials))
    plain = sorted({accelerator for task, _, _ in found for accelerator in hardware_of(task)})
    numbers = {hardware: number for number, hardware in enumerate(plain)}
    base = VtaTarget(order.targets[target])
    geometries = [geometry_of(base.geometry, dict(zip(HARDWARE, each, strict=True))) for each in plain]
    layers = [layer_of(task, weight, trials, numbers) for task, weight, trials in found]
    return Problem(layers, geometries, base.frequency_hz)


def hardware_of(task: Task) -> set[tuple[int, ...]]:
    """Return the values of `HARDWARE` of every accelerator that runs a layer."""
    space = VtaTarget(task.target).space(task.workload)
    columns = space.columns(space.vectors(space.all_valid_indices))
    return set(map(tuple, np.unique(np.stack([columns[name] for name in HARDWARE], axis=1), axis=0).tolist()))


def layer_of(task: Task, weight: float, trials: Sequence[Trial], numbers: Mapping[tuple[int, ...], int]) -> Layer:
    """Return a layer with all its programs, from a trial of each; `numbers` are indices of accelerators."""
    target, workload = VtaTarget(task.target), as_conv2d(task.workload)
    space = target.space(task.workload)
    indices, (identities, programs) = space.all_valid_indices, np.unique(space.all_identities, return_inverse=True)
    columns = space.columns(space.vectors(indices))
    hardware = np.stack([columns[name] for name in HARDWARE], axis=1)
    rows, inverse = np.unique(hardware, axis=0, return_inverse=True)
    accelerators = np.array([numbers[tuple(row)] for row in rows.tolist()])[inverse]
    base = target.geometry
    estimated = min_cycles(workload, columns, tiles_of(workload, base, columns)[1], base.bus_bytes)
    cycles = np.full(len(identities), np.inf)
    accesses = np.zeros((len(identities), len(COUNTED)))
    tried = np.searchsorted(identities, space.identities(space.vectors_of([trial.config for trial in trials])))
    for trial, program in zip(trials, tried.tolist(), strict=True):
        if trial.measurement.latency_s is not None:
            cycles[program] = trial.measurement.latency_s * target.frequency_hz
            design = design_of(workload, target.geometry, trial.config)
            padded = padded_to_blocks(workload, design.geometry)
            accesses[program] = accesses_of(lower_conv2d(padded, design.schedule, design.geometry, EPILOGUE))
    geometries = [geometry_of(base, dict(zip(HARDWARE, each, strict=True))) for each in numbers]
    each_j = np.array([unit_energies(geometry).each_j for geometry in geometries])
    joules = np.einsum("ij,ij->i", accesses[programs], each_j[accelerators])
    return Layer(task, space, weight, indices, accelerators, programs, joules, estimated, cycles, accesses)


Search = Callable[[Problem, np.random.Generator, Sequence[NDArray[np.bool_]]], Iterator[Simulated]]
"""A search that yields the programs to simulate next, given a mask of the simulated programs of each layer."""


def at_random(problem: Problem, rng: np.random.Generator, _: Sequence[NDArray[np.bool_]]) -> Iterator[Simulated]:
    """Sample an accelerator that runs all layers, and for each layer a program that fits it."""
    while True:
        at = problem.common[rng.integers(len(problem.common))]
        for number, layer in enumerate(problem.layers):
            yield number, int(layer.programs[rng.choice(layer.rows_of(at))])


def nsga2(problem: Problem, rng: np.random.Generator, _: Sequence[NDArray[np.bool_]]) -> Iterator[Simulated]:
    """NSGA-II (Deb et al., 2002) by Optuna: a genome has the accelerator and every layer's schedule.

    A schedule that does not fit the accelerator is replaced by the one that does and differs in the fewest knobs.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.NSGAIISampler(population_size=_POPULATION, seed=int(rng.integers(2**31)))
    study = optuna.create_study(directions=["minimize"] * 3, sampler=sampler)
    each_j, standing_w = problem.energies
    numbers = {tuple(hardware_config(problem.accelerators[at]).values()): at for at in problem.common}
    values = [sorted(set(column)) for column in zip(*numbers, strict=True)]
    while True:
        trial = study.ask()
        hardware = [trial.suggest_categorical(name, own) for name, own in zip(HARDWARE, values, strict=True)]
        at = numbers.get(tuple(hardware), -1)
        genomes = [
            [trial.suggest_categorical(f"{number}.{knob.name}", knob.values) for knob in layer.schedule]
            for number, layer in enumerate(problem.layers)
        ]
        latency_s, accesses = math.inf, np.zeros(len(COUNTED))
        if at >= 0:
            chosen = [layer.repaired(genome, at) for layer, genome in zip(problem.layers, genomes, strict=True)]
            yield from enumerate(chosen)
            both = list(zip(problem.layers, chosen, strict=True))
            latency_s = sum(layer.weight * layer.cycles[program] for layer, program in both) / problem.frequency_hz
            accesses = sum((layer.weight * layer.accesses[program] for layer, program in both), accesses)
        if math.isfinite(latency_s):
            joules = float(each_j[at] @ accesses + standing_w[at] * latency_s)
            study.tell(trial, np.log([latency_s, problem.areas[at], joules]).tolist())
        else:
            study.tell(trial, [_WORST] * 3)


def by_layer(preset: str, trials: int = 256) -> Search:
    """Return a search that tunes each layer separately with a preset, all layers in turns."""

    def search(problem: Problem, rng: np.random.Generator, _: Sequence[NDArray[np.bool_]]) -> Iterator[Simulated]:
        settings, sequences = PRESETS[preset], []
        for layer in problem.layers:
            latencies_s = layer.cycles[layer.programs] / problem.frequency_hz
            known_s = np.where(np.isfinite(latencies_s), latencies_s, np.nan)
            table = bench.Problem("", layer.space, known_s, layer.task.workload)
            found = replay(table, settings, trials, int(rng.integers(2**31)))
            sequences.append(layer.programs[table.rows([trial.config for trial in found.trials])].tolist())
        for at in range(trials):
            for number, programs in enumerate(sequences):
                if at < len(programs):
                    yield number, programs[at]

    return search


def by_estimate(
    problem: Problem, _: np.random.Generator, simulated: Sequence[NDArray[np.bool_]]
) -> Iterator[Simulated]:
    """Simulate the front estimated by a roofline, corrected by simulated programs of the same layer and block.

    Points are taken from the knee on, each the farthest from the previous ones; then the front is estimated again. When
    all of its programs are simulated, the estimates of the others are lowered step by step.
    """
    scale = 1.0
    while scale > _MIN_SCALE:
        costs = []
        for layer, known in zip(problem.layers, simulated, strict=True):
            is_known, own = known[layer.programs], layer.cycles[layer.programs]
            expected = layer.estimated * np.maximum(1.0, scale * _corrections(problem, layer, known))
            costs.append(np.where(is_known, own, expected))
        points, rows = problem.points(costs)
        candidates = np.flatnonzero(on_front(points))
        n_new = 0
        for at in candidates[_spread(points[candidates])].tolist():
            for number, layer in enumerate(problem.layers):
                program = int(layer.programs[rows[number][at]])
                if not simulated[number][program]:
                    n_new += 1
                    yield number, program
            if n_new >= 2 * len(problem.layers):
                break
        if not n_new:
            scale *= _SCALE_STEP


def _corrections(problem: Problem, layer: Layer, known: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the expected ratio of configs' cycles to their roofline, shape (n,).

    It is the median over the layer's simulated programs with the same block, else over all of them, else 1.
    """
    blocks = np.array([hash(each.block) for each in problem.accelerators])[layer.accelerators]
    rows = np.flatnonzero(known[layer.programs] & np.isfinite(layer.cycles[layer.programs]))
    if not len(rows):
        return np.ones(len(blocks))
    ratios = layer.cycles[layer.programs[rows]] / layer.estimated[rows]
    found = np.full(len(blocks), np.median(ratios))
    for block in np.unique(blocks[rows]):
        found[blocks == block] = np.median(ratios[blocks[rows] == block])
    return found


def _spread(points: Points) -> list[int]:
    """Order points: the knee, then always the point farthest from the previous ones, on logarithmic axes."""
    logs = np.log(points)
    logs /= np.maximum(np.ptp(logs, axis=0), 1e-12)
    order = [knee(points)]
    distances = np.linalg.norm(logs - logs[order[0]], axis=1)
    while len(order) < len(points):
        order.append(int(np.argmax(distances)))
        distances = np.minimum(distances, np.linalg.norm(logs - logs[order[-1]], axis=1))
        distances[order] = -1.0
    return order


METHODS: dict[str, Search] = {
    "random": at_random,
    "NSGA-II": nsga2,
    "dcoc, layer by layer": by_layer("dcoc"),
    "anole, layer by layer": by_layer("anole"),
    "estimated front": by_estimate,
}
DETERMINISTIC = ("estimated front",)


if __name__ == "__main__":
    main()
