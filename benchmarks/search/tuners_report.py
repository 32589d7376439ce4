"""Reports the results of `benchmarks/search/tuners.py`: raw trials, figures of every run and every tuner, and pictures.

    python -m benchmarks.search.tuners_report

The runs in ``db/tuners`` replace those of the same layers in ``tuners_trials.csv.xz`` and
``tuners_iterations.csv``. All other files are made from these, and can be made again without measuring.
"""

from __future__ import annotations

import math
import statistics
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.search.presets import PRESETS
from benchmarks.search.panels import panels
from benchmarks.search.tuners_raw import ITERATIONS, RUN, TRIALS, Rows, Runs, by_run, export, number, read, shown, write
from benchmarks.search.variants import BASELINE, KNOWN_LAYERS, VARIANTS, Place, add_place
from tests.kit.quality import Curve, incumbents, quartiles

BUDGET = 192
"""Number of trials that count in every run by default; longer runs of the baseline are the reference."""
CHECKPOINTS = (64, 128, 192)
QUALITIES = (0.95, 0.98)
SAME = 0.99
"""Confirmations vary by about one percent, so a result this close to the reference counts as equal."""

Key = tuple[str, str, int]
"""Layer, variant and seed."""


@dataclass(frozen=True)
class Summary:
    """The results of one run.

    Attributes:
        curve: the confirmed quality over the trials.
        reached: the trials and seconds to reach each of `QUALITIES`; infinity if never reached.
        figures: all other figures, by column.
    """

    curve: Curve
    reached: Mapping[float, tuple[float, float]]
    figures: Mapping[str, float]


def main() -> None:
    """Writes all files of this benchmark."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    add_place(parser)
    parser.add_argument("--results", type=Path, default=Path("docs/results/data"), help="folder of the results")
    parser.add_argument("--budget", type=int, default=BUDGET, help="number of trials that count in every run")
    arguments = parser.parse_args()
    export(Place(arguments.target, arguments.folder), arguments.results)
    report(arguments.results, arguments.budget)


def report(folder: Path, budget: int = BUDGET) -> None:
    """Writes the tables and pictures of the raw files in a folder."""
    checkpoints = sorted({*CHECKPOINTS, budget})
    trials, iterations = by_run(read(folder / TRIALS)), by_run(read(folder / ITERATIONS))
    curves = {key: curve(rows, best_ratio(key[0], trials)) for key, rows in trials.items()}
    autotvm_s = {layer: _seconds_of_trials(layer, curves, checkpoints) for layer in KNOWN_LAYERS}
    summaries = {
        key: summarise(trials[key][:budget], iterations.get(key, []), shortened(curves[key], budget), autotvm_s[key[0]])
        for key in trials
    }
    write_runs(summaries, folder / "tuners_runs.csv")
    write_variants(summaries, folder / "tuners_variants.csv")
    write_reference(curves, folder / "tuners_reference.csv", budget)
    draw(summaries, "trials", list(PRESETS), folder / "tuners_by_trials.svg")
    draw(summaries, "seconds", list(PRESETS), folder / "tuners_by_seconds.svg")
    parts = (BASELINE, *(variant for variant in VARIANTS if variant not in PRESETS))
    draw(summaries, "trials", parts, folder / "tuners_parts_by_trials.svg")


def curve(rows: Rows, best: float) -> Curve:
    """Returns a run's quality after every trial: the best confirmed ratio of the configs that were fastest until then.

    When a run ends, it confirms its fastest few configs, so a lucky measurement of another config does not mislead it.
    """
    ratios = np.array([number(row["ratio"]) for row in rows])
    fastest = incumbents([number(row["latency_s"]) for row in rows])
    quality = np.where(fastest < 0, np.nan, best / ratios[fastest])
    return Curve(np.array([float(row["elapsed_s"]) for row in rows]), np.fmax.accumulate(quality))


def shortened(whole: Curve, budget: int) -> Curve:
    """Returns the part of a curve within a budget."""
    return Curve(whole.elapsed_s[:budget], whole.quality[:budget])


def best_ratio(layer: str, trials: Runs) -> float:
    """Returns a layer's best confirmed ratio to the yardstick."""
    ratios = [number(row["ratio"]) for key, rows in trials.items() if key[0] == layer for row in rows]
    return float(np.nanmin([*ratios, np.inf]))


def summarise(rows: Rows, iterations: Rows, own: Curve, autotvm_s: Mapping[int, float]) -> Summary:
    """Returns the summary of a run.

    Args:
        rows: the run's trials.
        iterations: the figures of its search.
        own: its curve.
        autotvm_s: the seconds that the baseline took on this layer, by number of trials; NaN if it had fewer.
    """
    reached = {quality: own.reached(quality) or (math.inf, math.inf) for quality in QUALITIES}
    used = [row for row in iterations if int(row["iteration"]) <= int(rows[-1]["iteration"])]
    figures = {
        "trials": len(rows),
        "elapsed_s": own.elapsed_s[-1],
        **{f"quality_at_{n}": own.at_trials(n) for n in autotvm_s},
        **{f"quality_in_autotvm_s_of_{n}": own.at_seconds(seconds) for n, seconds in autotvm_s.items()},
        "iterations": len(used),
        **_quartiles("batch", Counter(row["iteration"] for row in rows).values()),
        **_quartiles("repeats", [int(row["repeats"]) for row in rows if row["status"] == "ok"]),
        "search_s": _median(number(row["search_s"]) for row in used),
        "steps": _median(number(row["steps"]) for row in used),
        "queries": _median(number(row["queries"]) for row in used),
        "invalid_share": statistics.fmean(row["status"] != "ok" for row in rows),
        "run_s": math.fsum(float(row["run_s"]) for row in rows),
        "build_s": math.fsum(float(row["build_s"]) for row in rows),
    }
    return Summary(own, reached, figures)


def _quartiles(name: str, counts: Iterable[int]) -> dict[str, float]:
    """Returns the quartiles of a run's batch sizes or repeats, which tell whether what is adaptive adapts."""
    found = list(counts)
    low, median, high = quartiles(found) if found else (math.nan,) * 3
    return {f"{name}_lower_quartile": low, f"{name}_median": median, f"{name}_upper_quartile": high}


def write_runs(summaries: Mapping[Key, Summary], path: Path) -> None:
    """Writes a line for each run."""
    rows = []
    for key, summary in summaries.items():
        row: dict[str, Any] = dict(zip(RUN, key, strict=True))
        for quality, (trials, seconds) in summary.reached.items():
            row |= {f"trials_to_{quality:.0%}": shown(trials), f"seconds_to_{quality:.0%}": shown(seconds)}
        rows.append(row | {name: shown(value) for name, value in summary.figures.items()})
    if rows:
        write(path, tuple(rows[0]), rows)


def write_variants(summaries: Mapping[Key, Summary], path: Path) -> None:
    """Writes a line for each tuner and figure: quartiles over layers and seeds, and its ratio to the baseline.

    The ratio is the baseline's figure over the tuner's, as the geometric mean over layers of the medians over seeds;
    for times and counts, more than 1 is better. A layer where the median of either is not reached does not count;
    `layers` is the number of layers that count.
    """
    rows = []
    for variant in VARIANTS:
        own = _figures(summaries, variant)
        baseline = _figures(summaries, BASELINE)
        for name, by_layer in own.items():
            values = [value for found in by_layer.values() for value in found if not math.isnan(value)]
            ratios = _ratios(baseline.get(name, {}), by_layer)
            if values:
                low, median, high = quartiles(values)
                rows.append(
                    {
                        "variant": variant,
                        "figure": name,
                        "runs": len(values),
                        "reached": sum(math.isfinite(value) for value in values),
                        "lower_quartile": shown(low),
                        "median": shown(median),
                        "upper_quartile": shown(high),
                        "autotvm_over_it": shown(statistics.geometric_mean(ratios) if ratios else math.nan),
                        "layers": len(ratios),
                    }
                )
    if rows:
        write(path, tuple(rows[0]), rows)


def write_reference(curves: Mapping[Key, Curve], path: Path, budget: int) -> None:
    """Writes how much sooner each run reached the quality of the baseline's longest run of the layer.

    The baseline's own times are that of its whole run, and that when it first reached its quality. A run that never
    reached the quality counts with its whole time, which flatters it; `reached` shows this. The last lines have, over
    all layers, the geometric means of the medians over the seeds.
    """
    rows = [row for layer in KNOWN_LAYERS for row in _against_longest(layer, curves, budget)]
    for variant in VARIANTS:
        own = [row for row in rows if row["variant"] == variant]
        layers = list(dict.fromkeys(row["layer"] for row in own))
        if own:
            means = {
                column: statistics.geometric_mean(
                    statistics.median(row[column] for row in own if row["layer"] == layer) for layer in layers
                )
                for column in ("sooner_than_whole_run", "sooner_than_first")
            }
            reached = sum(row["reached"] for row in own)
            rows.append({"layer": "all", "variant": variant, "runs": len(own), "reached": reached, **means})
    if rows:
        write(path, tuple(rows[0]), [{name: _plain(value) for name, value in row.items()} for row in rows])


def _against_longest(layer: str, curves: Mapping[Key, Curve], budget: int) -> Iterator[dict[str, Any]]:
    """Yields the comparison of each run of a layer with the baseline's longest run."""
    baselines = [found for key, found in curves.items() if key[:2] == (layer, BASELINE)]
    if not baselines:
        return
    longest = max(baselines, key=lambda found: len(found.quality))
    quality = longest.at_trials(len(longest.quality))
    first = longest.reached(SAME * quality)
    if first is None:
        return
    for (_, variant, seed), whole in ((key, found) for key, found in curves.items() if key[0] == layer):
        own = shortened(whole, budget)
        reached = own.reached(SAME * quality)
        trials, seconds = reached or (len(own.quality), float(own.elapsed_s[-1]))
        yield {
            **{"layer": layer, "variant": variant, "seed": seed, "runs": 1, "reached": int(reached is not None)},
            **{"reference_trials": len(longest.quality), "reference_quality": quality},
            **{"trials": trials, "seconds": seconds},
            "sooner_than_whole_run": float(longest.elapsed_s[-1]) / seconds,
            "sooner_than_first": first[1] / seconds,
        }


def draw(summaries: Mapping[Key, Summary], against: str, variants: Sequence[str], path: Path) -> None:
    """Draws each layer's median quality over the seeds against trials or seconds; nothing where none is known."""
    curves = defaultdict(list)
    for (layer, variant, _), summary in summaries.items():
        curves[layer, variant].append(summary.curve)
    lines = {key: _median_curve(curves[key], against) for key in product(KNOWN_LAYERS, variants) if key in curves}
    known = {key: line for key, line in lines.items() if len(line[0])}
    if not known:
        return
    layers = list(dict.fromkeys(layer for layer, _ in known))
    with panels(layers, against, "quality: best known latency over own", path) as axes:
        for (layer, variant), line in known.items():
            axes.line(layer, variant, *line)
        axes.limit(0.5, 1.02)


def _median_curve(curves: Sequence[Curve], against: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the median of some curves over the range that all of them cover."""
    if against == "trials":
        x = np.arange(1.0, 1 + max(len(curve.quality) for curve in curves))
        columns = [[curve.at_trials(int(trials)) for trials in x] for curve in curves]
    else:
        x = np.geomspace(1.0, max(curve.elapsed_s[-1] for curve in curves), 200)
        columns = [[curve.at_seconds(seconds) for seconds in x] for curve in curves]
    y = np.median(columns, axis=0)
    return x[~np.isnan(y)], y[~np.isnan(y)]


def _figures(summaries: Mapping[Key, Summary], variant: str) -> dict[str, dict[str, list[float]]]:
    """Returns the results of a variant's runs, by figure and layer."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (layer, name, _), summary in summaries.items():
        if name == variant:
            for quality, (trials, seconds) in summary.reached.items():
                found[f"trials_to_{quality:.0%}"][layer].append(trials)
                found[f"seconds_to_{quality:.0%}"][layer].append(seconds)
            for figure, value in summary.figures.items():
                found[figure][layer].append(value)
    return found


def _ratios(baseline: Mapping[str, Sequence[float]], own: Mapping[str, Sequence[float]]) -> list[float]:
    """Returns the ratio of the baseline's median to the tuner's own for each layer where both are positive numbers."""
    pairs = [(quartiles(baseline[layer])[1], quartiles(own[layer])[1]) for layer in own if layer in baseline]
    return [mine / other for mine, other in pairs if math.isfinite(mine) and math.isfinite(other) and mine * other > 0]


def _seconds_of_trials(layer: str, curves: Mapping[Key, Curve], checkpoints: Sequence[int]) -> dict[int, float]:
    """Returns the seconds that the baseline took on a layer by number of trials, the median over its seeds or NaN."""
    own = [curve.elapsed_s for key, curve in curves.items() if key[:2] == (layer, BASELINE)]
    taken = {trials: [elapsed_s[trials - 1] for elapsed_s in own if len(elapsed_s) >= trials] for trials in checkpoints}
    return {trials: statistics.median(seconds) if seconds else math.nan for trials, seconds in taken.items()}


def _plain(value: Any) -> Any:
    return shown(value) if isinstance(value, float) else value


def _median(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return statistics.median(known) if known else math.nan


if __name__ == "__main__":
    main()
