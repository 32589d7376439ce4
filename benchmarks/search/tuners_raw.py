"""Exports the raw results of `benchmarks/search/tuners.py` as tables: every trial and every iteration's search."""

from __future__ import annotations

import csv
import lzma
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from anole.errors import SpecError
from anole.files import document_text
from anole.keys import canonical_json
from anole.search.loop import TUNER_VERSION
from anole.store.content import ShardContent
from anole.task import Task
from benchmarks.search.tuners import latencies_s, read_confirmations, runs_of, settings_of
from benchmarks.search.variants import KNOWN_LAYERS, VARIANTS, Place
from tests.kit.quality import incumbents

RUN = ("layer", "variant", "seed")
TRIAL = ("number", "iteration", "elapsed_s", "latency_s", "status", "cv", "repeats", "build_s", "run_s", "ratio")
"""The columns of a trial; the ratio is its config's confirmed latency over that of the layer's yardstick config."""
ITERATION = ("iteration", "search_s", "steps", "queries")
TRIALS, ITERATIONS = "tuners_trials.csv.xz", "tuners_iterations.csv"

Rows = list[dict[str, str]]
Runs = dict[tuple[str, str, int], Rows]


def export(place: Place, folder: Path) -> None:
    """Writes the raw trials and iterations; a layer without data in the work folder keeps its old rows."""
    trials, iterations, layers, machine = [], [], [], {}
    for layer in KNOWN_LAYERS:
        found = list(runs_of(place, layer))
        if not found:
            continue
        confirmed = read_confirmations(place, layer)
        ratios = {canonical_json(entry["config"]): entry["ratio"] for entry in confirmed["confirmed"]}
        for content in found:
            host = {name: value for name, value in content.run.host.items() if name != "name"}
            machine = {"host": host, "versions": content.run.versions, "target": content.task.target}
            for variant in _variants_of(content):
                name = (layer, variant, content.run.seed)
                trials += [dict(zip(RUN, name, strict=True)) | row for row in _trial_rows(content, ratios)]
                iterations += [dict(zip(RUN, name, strict=True)) | row for row in _iteration_rows(content)]
        layers.append(_layer_row(place.task_of(layer), layer, confirmed["confirmed"]))
    if not layers:
        return
    fresh = {row["layer"] for row in layers}
    for path, columns, rows in (
        (folder / TRIALS, (*RUN, *TRIAL), trials),
        (folder / ITERATIONS, (*RUN, *ITERATION), iterations),
        (folder / "tuners_layers.csv", tuple(layers[0]), layers),
    ):
        kept = [row for row in read(path) if row["layer"] not in fresh]
        write(path, columns, sorted([*kept, *rows], key=lambda row: row["layer"]))
    (folder / "tuners_machine.json").write_text(document_text(machine))


def by_run(rows: Rows) -> Runs:
    """Returns the rows of each run."""
    runs: Runs = defaultdict(list)
    for row in rows:
        runs[row["layer"], row["variant"], int(row["seed"])].append(row)
    return dict(runs)


def number(text: str) -> float:
    """Returns a figure of a table; NaN for an empty cell."""
    return float(text) if text else math.nan


def shown(value: float | None) -> str:
    """Returns a figure as a table cell; empty for None."""
    return "" if value is None or not math.isfinite(value) else f"{value:.5g}"


def read(path: Path) -> Rows:
    """Reads a table; returns no rows if the file is missing."""
    if not path.exists():
        return []
    with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as file:
        return list(csv.DictReader(file))


def write(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes a table, compressed if its name ends in ``.xz``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wt", newline="") if path.suffix == ".xz" else path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _variants_of(content: ShardContent) -> list[str]:
    """Returns the variants that a run belongs to; one variant may have two names."""
    names = []
    for variant in VARIANTS:
        try:
            settings = settings_of(variant, _sizes_in(content)).to_json()
        except SpecError:
            continue
        if (
            canonical_json(content.run.settings) == canonical_json(settings)
            and content.run.tuner_version == TUNER_VERSION
        ):
            names.append(variant)
    return names


def _sizes_in(content: ShardContent) -> Sequence[int]:
    """Returns the batch sizes that a control was given; none for another tuner."""
    sampler = content.run.settings["sampler"]
    return tuple(sampler.get("sizes", ()))


def _trial_rows(content: ShardContent, ratios: Mapping[str, float | None]) -> Iterable[dict[str, Any]]:
    fastest = set(incumbents(latencies_s(content.trials)).tolist())
    for trial, config in zip(content.trials, content.configs, strict=True):
        ratio = ratios.get(config) if trial.number in fastest else None
        figures = trial.measurement
        values = (
            *(trial.number, trial.iteration, f"{trial.elapsed_s:.2f}", shown(figures.latency_s), figures.status.value),
            *(shown(figures.cv), figures.repeats, f"{figures.build_s:.3f}", f"{figures.run_s:.3f}", shown(ratio)),
        )
        yield dict(zip(TRIAL, values, strict=True))


def _iteration_rows(content: ShardContent) -> Iterable[dict[str, Any]]:
    for number, log in content.iterations.items():
        yield {"iteration": number, **{name: shown(log.get(name)) for name in ITERATION[1:]}}


def _layer_row(task: Task, layer: str, confirmed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    best = min((entry for entry in confirmed if entry["ratio"]), key=lambda entry: entry["ratio"], default=None)
    latency_s = best["latency_s"] if best else None
    return {
        "layer": layer,
        "task": task.label,
        "flop": task.workload.flop,
        "confirmed": len(confirmed),
        "best_latency_s": shown(latency_s),
        "best_gflops": shown(task.workload.flop / latency_s / 1e9 if latency_s else None),
        "best_config": canonical_json(best["config"]) if best else "",
    }
