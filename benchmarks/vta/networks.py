"""The experiment of DCOC's Table 5: entire networks on the accelerator, with one block for all layers.

Each layer is searched on its exact table with VTA's buffers, for 128 trials. A network gets the block that minimizes
the total time of tried configs; the optimum over all blocks and configs is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from anole.bench.ask_tell import replay
from anole.bench.problem import Problem
from anole.bench.tables import files, load
from anole.search.loop import TUNER_VERSION
from anole_vta.target import VtaTarget
from anole_vta.templates.design import BLOCK
from benchmarks.search.experiment import Experiment, Job, Row, version_of
from benchmarks.search.variants import TABLE_VARIANTS, tuner_of
from benchmarks.vta.tables import DESCRIPTION, networks

TRIALS, SEEDS = 128, 20
VARIANTS = ("random", "anole cold", "autotvm", "SA+diverse batch 16", "chameleon", "dcoc")

Best = Mapping[str, float]
"""The lowest latency in microseconds by block, such as ``1x16x16``."""


def jobs() -> Iterator[Job]:
    """Yield network, variant, seed and version; seeds are the outer loop."""
    for seed in range(SEEDS):
        for variant in VARIANTS:
            for network in networks():
                yield network, variant, str(seed), _version(network, variant)


def run(job: Job) -> Sequence[Row]:
    """Replay a search on the table of each layer of a network."""
    network, variant, seed, _ = job
    layers = networks()[network]
    best_of_layer = {layer: _search_layer(layer, variant, int(seed)) for layer in layers}
    seconds = {"latency_s": _min_s(layers, {layer: best for layer, (best, _) in best_of_layer.items()})}
    seconds["optimum_s"] = _optimum_s(network)
    counts = {"layers": len(layers), "optimal_layers": sum(is_optimal for _, is_optimal in best_of_layer.values())}
    return [{name: f"{value:.6f}" for name, value in seconds.items()} | counts]


@cache
def _search_layer(layer: str, variant: str, seed: int) -> tuple[Best, bool]:
    """Return the lowest latencies that a search of a layer finds, and whether one is the optimum."""
    table = _table(layer)
    run = replay(table, tuner_of(variant, variants=TABLE_VARIANTS), TRIALS, seed)
    best = _best_by_block(table, table.rows([trial.config for trial in run.trials]))
    return best, round(float(table.gaps([trial.config for trial in run.trials])[-1]), 5) == 0


ACCELERATOR = Experiment(
    "accelerator",
    ("network", "variant", "seed", "version"),
    ("latency_s", "optimum_s", "layers", "optimal_layers"),
    jobs,
    run,
)


def _min_s(layers: Mapping[str, int], tried: Mapping[str, Best]) -> float:
    """Return the seconds of a network on its best block within the bounds.

    As in a build, a layer has the default config unless a tried config on the block is faster.
    """
    both = {
        layer: {
            block: min(tried[layer].get(block, np.inf), _defaults_us(layer).get(block, np.inf))
            for block in {**tried[layer], **_defaults_us(layer)}
        }
        for layer in layers
    }
    blocks = filter(_is_allowed, set.intersection(*(set(each) for each in both.values())))
    return 1e-6 * min(sum(n * both[layer][block] for layer, n in layers.items()) for block in blocks)


@cache
def _optimum_s(network: str) -> float:
    layers = networks()[network]
    return _min_s(layers, {layer: _all_blocks(layer) for layer in layers})


@cache
def _all_blocks(layer: str) -> Best:
    return _best_by_block(_table(layer), np.arange(len(_table(layer).latencies_s)))


def _best_by_block(table: Problem, rows: NDArray[np.int64]) -> dict[str, float]:
    """Return the lowest latency in microseconds of each block in the given rows."""
    columns = table.space.columns(table.space.vectors(table.space.all_valid_indices[rows]))
    blocks = zip(*(columns[name].tolist() for name in BLOCK), strict=True)
    best: dict[str, float] = {}
    for block, latency_s in zip(blocks, table.latencies_s[rows].tolist(), strict=True):
        name = "x".join(map(str, block))
        if np.isfinite(latency_s):
            best[name] = min(best.get(name, np.inf), round(1e6 * latency_s, 2))
    return best


@cache
def _defaults_us(layer: str) -> Best:
    """Return the latency in microseconds of a layer's default config on each block."""
    table, target = _table(layer), VtaTarget(DESCRIPTION)
    latencies_us = {}
    for block in _all_blocks(layer):
        default = target.with_geometry(target.geometry_of(_config(block))).default_config(table.workload)
        latencies_us[block] = 1e6 * float(table.latencies_s[table.rows([default])[0]])
    return latencies_us


@cache
def _is_allowed(block: str) -> bool:
    target = VtaTarget(DESCRIPTION)
    assert target.bounds is not None
    return not target.bounds.excess(target.geometry_of(_config(block)))


def _config(block: str) -> dict[str, int]:
    return dict(zip(BLOCK, map(int, block.split("x")), strict=True))


def _table(layer: str) -> Problem:
    return load(f"vta/{layer}")


@cache
def _version(network: str, variant: str) -> str:
    """Return a run's version, which covers tables, tuner settings and the code of the search."""
    tables = [files("vta")[layer].read_bytes().hex() for layer in networks()[network]]
    return version_of(tables, tuner_of(variant, variants=TABLE_VARIANTS).to_json(), TUNER_VERSION, TRIALS)
