"""Compares the search methods on the accelerator's design spaces, which have known optima, as CSV.

    python benchmarks/vta_tuners.py runs docs/results/data/vta_runs.csv   # a line for each run; adds missing ones
    python benchmarks/vta_tuners.py summary < docs/results/data/vta_runs.csv > docs/results/data/vta_summary.csv
    python benchmarks/vta_tuners.py models < docs/results/data/vta_runs.csv > docs/results/data/vta_models.csv
    python benchmarks/vta_tuners.py picture docs/results/data/vta_tuners.svg < docs/results/data/vta_runs.csv

Latencies come from `vta_tables.py`. The cost of a config is its latency divided by its worth (DCOC's penalty for area
and memory). The gap of a run is the relative extra cost of its cheapest config over the cheapest of the whole space.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anole.host.machine import available_cores
from anole.targets.vta.target import VtaTarget
from anole.targets.vta.templates.design import BLOCK
from anole.testing.quality import batch_sizes, shares
from anole.testing.tables import Replay, Table, read_table, replay
from protocol import Variants, chosen, sized_as, tuner_of
from vta_tables import DESCRIPTION, MODELS, TABLES, layers_of, table_path

CHECKPOINTS = (16, 32, 64, 96, 128)
VARIANTS: Variants = {
    "random": {"preset": "random"},
    "autotvm": {"preset": "autotvm"},
    "chameleon": {"preset": "chameleon"},
    "dcoc": {"preset": "dcoc"},
    "anole": {"preset": "anole", "min_gain": None, "warm_start": False},
    # DCOC's additions, part by part; MAPPO+CS is DCOC itself, and PPO+AS is Chameleon, which chooses its own batch
    # size.
    "MAPPO+greedy": {"preset": "dcoc", "sampler": "greedy"},
    "MAPPO+AS": {"preset": "dcoc", "sampler": "adaptive", "batch": 64},
    "PPO+CS": {"preset": "dcoc", "explorer": {"name": "ppo", "converged_share": None, "n_candidates": 64}},
    "SA+greedy batch 16": {"preset": "autotvm", "batch": 16},
    # Controls: Chameleon's explorer, in batches of the sizes of its own, chosen otherwise.
    "PPO+greedy sizes of AS": {"preset": "chameleon", "control": ("greedy", "chameleon")},
    "PPO+top 64 sizes of AS": {"preset": "chameleon", "control": ("top 64", "chameleon")},
}
COLUMNS = (
    *("layer", "variant", "seed", "trials"),
    *(f"gap_at_{trials}" for trials in CHECKPOINTS),
    *("trials_to_5%", "search_s_to_5%", "trials_to_1%", "search_s_to_1%"),
    *("search_s", "invalid_share", "configs", "batches"),
)
_GAPS = (0.05, 0.01)


def main() -> None:
    """Runs the chosen command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(required=True, dest="kind")
    runs = kinds.add_parser("runs")
    runs.add_argument("path", type=Path)
    runs.add_argument("--layers", default="", help="names of tables, comma-separated; all by default")
    runs.add_argument("--variants", default="", help="comma-separated; all by default")
    runs.add_argument("--seeds", type=int, default=20)
    runs.add_argument("--trials", type=int, default=CHECKPOINTS[-1])
    runs.add_argument("--processes", type=int, default=available_cores())
    kinds.add_parser("summary")
    kinds.add_parser("models")
    kinds.add_parser("picture").add_argument("path", type=Path)
    arguments = parser.parse_args()
    if arguments.kind == "runs":
        print_runs(arguments)
    elif arguments.kind == "summary":
        print_summary(list(csv.DictReader(sys.stdin)))
    elif arguments.kind == "models":
        print_models(list(csv.DictReader(sys.stdin)))
    else:
        draw(list(csv.DictReader(sys.stdin)), arguments.path)


def print_runs(arguments: argparse.Namespace) -> None:
    """Runs every variant on every table with every seed, except for existing runs."""
    path: Path = arguments.path
    lines = list(csv.DictReader(path.open())) if path.exists() else []
    done = {(line["layer"], line["variant"], int(line["seed"])) for line in lines}
    layers = chosen(arguments.layers, {path.stem: path for path in sorted(TABLES.glob("*.json"))})
    variants = chosen(arguments.variants, VARIANTS)
    # Seeds are the outer loop, so that even an interrupted benchmark compares all variants.
    everything = [(layer, variant, seed) for seed in range(arguments.seeds) for layer in layers for variant in variants]
    jobs = [job for job in everything if job not in done]
    with path.open("a", newline="") as file, ProcessPoolExecutor(arguments.processes) as pool:
        writer = csv.writer(file)
        if not done:
            writer.writerow(COLUMNS)
        for row in pool.map(_row, *(zip(*jobs, strict=True) if jobs else ((), (), ())), [arguments.trials] * len(jobs)):
            writer.writerow(row)
            file.flush()


def _row(layer: str, variant: str, seed: int, n_trials: int) -> list[object]:
    """Returns the line of one run."""
    table = table_of(layer)
    run = _run(layer, variant, seed, n_trials)
    rows = table.rows([trial.config for trial in run.trials])
    costs_s = costs_of(layer)
    gaps = np.minimum.accumulate(costs_s[rows]) / np.min(costs_s) - 1
    at = [gaps[min(trials, len(gaps)) - 1] for trials in CHECKPOINTS]
    reached: list[object] = []
    for gap in _GAPS:
        hits = np.flatnonzero(gaps <= gap)
        first = int(hits[0]) if len(hits) else None
        reached += ["", ""] if first is None else [first + 1, f"{run.trials[first].elapsed_s:.3f}"]
    best = _best_by_block(table, rows)
    invalid = sum(trial.measurement.latency_s is None for trial in run.trials) / len(run.trials)
    return [
        *(layer, variant, seed, len(run.trials), *(f"{gap:.5f}" for gap in at), *reached),
        *(f"{run.trials[-1].elapsed_s:.3f}", f"{invalid:.4f}", json.dumps(best), shares(batch_sizes(run.trials))),
    ]


@lru_cache(maxsize=4)
def _run(layer: str, variant: str, seed: int, n_trials: int) -> Replay:
    """Returns a run, for a control after the one whose batch sizes it has."""
    other = sized_as(variant, VARIANTS)
    sizes = batch_sizes(_run(layer, other, seed, n_trials).trials) if other is not None else ()
    return replay(table_of(layer), tuner_of(variant, sizes, VARIANTS), n_trials, seed)


def _best_by_block(table: Table, rows: NDArray[np.int64]) -> dict[str, float]:
    """Returns the least latency in microseconds of each accelerator block that occurs in some configs."""
    columns = table.space.columns(table.space.vectors(table.space.every_valid_index[rows]))
    blocks = zip(*(columns[name].tolist() for name in BLOCK), strict=True)
    best: dict[str, float] = {}
    for block, latency_s in zip(blocks, table.latencies_s[rows].tolist(), strict=True):
        name = "x".join(map(str, block))
        if np.isfinite(latency_s):
            best[name] = min(best.get(name, np.inf), round(1e6 * latency_s, 2))
    return best


@cache
def table_of(layer: str) -> Table:
    """Returns the table of a layer."""
    return read_table(TABLES / f"{layer}.json")


@cache
def costs_of(layer: str) -> NDArray[np.float64]:
    """Returns the cost in seconds of every valid config of a layer, shape (n_valid,); infinity for failures."""
    return np.nan_to_num(table_of(layer).costs_s, nan=np.inf, posinf=np.inf)


SUMMARY_COLUMNS = (
    *("variant", "runs", "within_5%", "median_trials_to_5%", "median_s_to_5%"),
    *("within_1%", "median_trials_to_1%", "median_s_to_1%"),
    *(f"mean_gap_at_{trials}" for trials in CHECKPOINTS),
    *(f"throughput_of_autotvm_at_{trials}" for trials in CHECKPOINTS),
)


def print_summary(runs: Sequence[Mapping[str, str]]) -> None:
    """Prints a line for each variant, over all layers with more configs in their space than trials in a run.

    All variants have runs of the same layers and seeds. A median is empty if half of the runs did not reach the
    quality. Seconds include searching and simulating. Throughput is the geometric mean over runs of AutoTVM's cost
    over the variant's, after equally many trials.
    """
    larger = [run for run in runs if len(costs_of(run["layer"])) > CHECKPOINTS[-1]]
    by_variant: dict[str, dict[tuple[str, str], Mapping[str, str]]] = {}
    for run in larger:
        by_variant.setdefault(run["variant"], {})[run["layer"], run["seed"]] = run
    common = sorted(set.intersection(*(set(own) for own in by_variant.values())))
    writer = csv.writer(sys.stdout)
    writer.writerow(SUMMARY_COLUMNS)
    for variant, of_variant in by_variant.items():
        own = [of_variant[place] for place in common]
        row: list[object] = [variant, len(own)]
        for quality in ("5%", "1%"):
            reached = [run for run in own if run[f"trials_to_{quality}"]]
            trials = [float(run[f"trials_to_{quality}"]) for run in reached]
            seconds = [
                float(run[f"search_s_to_{quality}"]) + n * _simulate_s(run["layer"])
                for run, n in zip(reached, trials, strict=True)
            ]
            row += [len(reached), _median(trials, len(own), 0), _median(seconds, len(own), 2)]
        gaps = {at: [1 + float(run[f"gap_at_{at}"]) for run in own] for at in CHECKPOINTS}
        base = {at: [1 + float(by_variant["autotvm"][p][f"gap_at_{at}"]) for p in common] for at in CHECKPOINTS}
        row += [f"{statistics.fmean(gaps[at]) - 1:.4f}" for at in CHECKPOINTS]
        row += [f"{np.exp(np.mean(np.log(np.array(base[at]) / np.array(gaps[at])))):.3f}" for at in CHECKPOINTS]
        writer.writerow(row)


def _median(values: Sequence[float], n: int, digits: int) -> str:
    """Returns the median of n values, of which unknown ones are larger than all others; empty if it is unknown."""
    filled = sorted(values) + [np.inf] * (n - len(values))
    middle = (filled[(n - 1) // 2] + filled[n // 2]) / 2
    return f"{middle:.{digits}f}" if np.isfinite(middle) else ""


MODEL_COLUMNS = (
    *("model", "variant", "seed", "trials", "search_s", "simulate_s", "block", "latency_s", "optimum_s", "gap"),
    *("per_layer_s", "per_layer_optimum_s", "per_layer_gap"),
)


def print_models(runs: Sequence[Mapping[str, str]]) -> None:
    """Prints the latencies of whole networks from runs, with one accelerator for all layers and with one for each."""
    writer = csv.writer(sys.stdout)
    writer.writerow(MODEL_COLUMNS)
    found = {(run["layer"], run["variant"], run["seed"]): run for run in runs}
    kinds = list(dict.fromkeys((variant, seed) for _, variant, seed in found))
    for model in MODELS:
        layers = [(table_path(layer).stem, weight) for layer, weight in layers_of(model)]
        if not all((TABLES / f"{name}.json").exists() for name, _ in layers):
            continue
        best = {name: _best_by_block(table_of(name), np.arange(len(table_of(name).latencies_s))) for name, _ in layers}
        optimum_block, optimum_us = _one_block(layers, best, {})
        per_layer_optimum_us = _each_its_own(layers, best)
        print(f"{model}: the optimum is {optimum_us / 1e6:.5f} s on {optimum_block}", file=sys.stderr)
        defaults = {name: _defaults(name) for name, _ in layers}
        for variant, seed in kinds:
            own = [found.get((name, variant, seed)) for name, _ in layers]
            if None in own:
                continue
            lines = [run for run in own if run is not None]
            tried = {name: json.loads(run["configs"]) for (name, _), run in zip(layers, lines, strict=True)}
            block, latency_us = _one_block(layers, tried, defaults)
            per_layer_us = _each_its_own(layers, tried)
            trials = sum(int(run["trials"]) for run in lines)
            simulate_s = sum(
                int(run["trials"]) * _simulate_s(name) for (name, _), run in zip(layers, lines, strict=True)
            )
            writer.writerow(
                [
                    *(model, variant, seed, trials, f"{sum(float(run['search_s']) for run in lines):.2f}"),
                    *(f"{simulate_s:.2f}", block, f"{latency_us / 1e6:.6f}", f"{optimum_us / 1e6:.6f}"),
                    *(f"{latency_us / optimum_us - 1:.5f}", f"{per_layer_us / 1e6:.6f}"),
                    *(f"{per_layer_optimum_us / 1e6:.6f}", f"{per_layer_us / per_layer_optimum_us - 1:.5f}"),
                ]
            )


Layers = Sequence[tuple[str, int]]
"""Names of tables, each with the number of times that the layer occurs in the network."""

Best = Mapping[str, Mapping[str, float]]
"""The least latency in microseconds, by layer and block."""


def _one_block(layers: Layers, tried: Best, defaults: Best) -> tuple[str, float]:
    """Returns the block within the bounds that minimises the network's latency, and this latency in microseconds.

    As in a build, a layer gets the default config unless a tried config on the block is faster.
    """
    both = {
        name: {
            block: min(tried[name].get(block, np.inf), defaults.get(name, {}).get(block, np.inf))
            for block in {**tried[name], **defaults.get(name, {})}
        }
        for name, _ in layers
    }
    blocks = set.intersection(*(set(each) for each in both.values()))
    totals = {
        block: sum(weight * both[name][block] for name, weight in layers) for block in blocks if _is_allowed(block)
    }
    block = min(totals, key=lambda block: (totals[block], block))
    return block, totals[block]


def _each_its_own(layers: Layers, tried: Best) -> float:
    """Returns a network's latency in microseconds if every layer had its own accelerator."""
    return sum(
        weight * min(latency_us for block, latency_us in tried[name].items() if _is_allowed(block))
        for name, weight in layers
    )


@cache
def _is_allowed(block: str) -> bool:
    target = VtaTarget(DESCRIPTION)
    assert target.bounds is not None
    config = dict(zip(BLOCK, map(int, block.split("x")), strict=True))
    return not target.bounds.excess(target.geometry_of(config))


@cache
def _defaults(name: str) -> dict[str, float]:
    """Returns the latency in microseconds of a layer's default config on each block."""
    table, target = table_of(name), VtaTarget(DESCRIPTION)
    found = {}
    for block in _best_by_block(table, np.arange(len(table.latencies_s))):
        config = dict(zip(BLOCK, map(int, block.split("x")), strict=True))
        default = target.with_geometry(target.geometry_of(config)).default_config(table.workload)
        found[block] = 1e6 * float(table.latencies_s[table.rows([default])[0]])
    return found


@cache
def _simulate_s(name: str) -> float:
    """Returns the mean seconds of simulating a config of a layer."""
    plain = json.loads((TABLES / f"{name}.json").read_text(encoding="utf-8"))
    return float(plain["seconds"]) / len(plain["latency_us"])


def draw(runs: Iterable[Mapping[str, str]], path: Path) -> None:
    """Draws the mean gap against trials, with a panel for each layer."""
    from picture import panels

    lines = list(runs)
    names = list(dict.fromkeys(run["layer"] for run in lines))
    with panels(names, "trials", "gap to the optimum", path, VARIANTS) as axes:
        for name in names:
            for variant in VARIANTS:
                own = [run for run in lines if (run["layer"], run["variant"]) == (name, variant)]
                if own:
                    gaps = [statistics.fmean(float(run[f"gap_at_{trials}"]) for run in own) for trials in CHECKPOINTS]
                    axes.line(name, variant, CHECKPOINTS, gaps)


if __name__ == "__main__":
    main()
