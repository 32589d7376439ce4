"""Compare the search methods on recorded tables, without hardware, as CSV.

    python -m benchmarks.search.replay > docs/results/data/tuners_replayed.csv

A row is one run. The gap after n trials is the natural logarithm of the ratio of the fastest trial's latency to the
table's best; gap_16 is the mean over the sixteen fastest trials, to reduce the effect of a lucky sample. Search seconds
are the median over the iterations, on one core.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from anole.bench.ask_tell import Replay, replay
from anole.bench.problem import Problem
from anole.bench.quality import batch_sizes, incumbents, log_gap, shares, trials_until
from anole.bench.tables import files, load
from benchmarks.common.arguments import chosen, described
from benchmarks.common.rows import print_rows
from benchmarks.search.variants import VARIANTS, sized_as, tuner_of

CHECKPOINTS = (64, 96, 128, 192, 256)
QUALITIES = (0.95, 0.98)
COLUMNS = (
    *("table", "variant", "seed", "trials"),
    *(f"gap_at_{trials}" for trials in CHECKPOINTS),
    *(f"gap_16_at_{trials}" for trials in CHECKPOINTS),
    *(f"trials_to_{quality:.0%}" for quality in QUALITIES),
    *("iterations", "batches", "search_s", "steps"),
)


def main() -> None:
    """Print a row for each run."""
    parser = described(__doc__)
    parser.add_argument("--tables", default="", help="comma-separated; all by default")
    parser.add_argument("--variants", default="", help="comma-separated; all by default")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=256)
    print_rows(COLUMNS, compare(parser.parse_args()))


def compare(given: Any) -> Iterator[dict[str, object]]:
    """Yield the row of each run."""
    variants = chosen(given.variants, VARIANTS)
    for name in chosen(given.tables, list(files("cpu"))):
        table = load(f"cpu/{name}")
        for seed in range(given.seeds):
            for variant, run in runs_of(table, variants, given.trials, seed):
                values = (name, variant, seed, len(run.trials), *figures(table, run))
                yield dict(zip(COLUMNS, values, strict=True))


def runs_of(table: Problem, variants: Iterable[str], n_trials: int, seed: int) -> Iterator[tuple[str, Replay]]:
    """Run variants on a table; a control runs after the variant whose batch sizes it copies."""
    found: dict[str, Replay] = {}
    for variant in variants:
        for name in (sized_as(variant), variant):
            if name is not None and name not in found:
                other = sized_as(name)
                sizes = batch_sizes(found[other].trials) if other else ()
                found[name] = replay(table, tuner_of(name, sizes), n_trials, seed)
        yield variant, found[variant]


def figures(table: Problem, run: Replay) -> list[str]:
    """Return the result columns of a run, beginning with the gaps."""
    latencies_s = np.array([trial.measurement.latency_s or np.nan for trial in run.trials])
    best = incumbents(latencies_s)
    qualities = np.where(best < 0, np.nan, table.best_s / latencies_s[best])
    gaps = [log_gap(latencies_s[:trials], table.best_s, n) for n in (1, 16) for trials in CHECKPOINTS]
    reached = [trials_until(qualities, quality) for quality in QUALITIES]
    logs = list(run.iterations.values())
    steps = [log["steps"] for log in logs if "steps" in log]
    return [
        *(f"{gap:.4f}" for gap in gaps),
        *("" if trials is None else str(trials) for trials in reached),
        str(len(logs)),
        shares(batch_sizes(run.trials)),
        f"{statistics.median(log['search_s'] for log in logs):.4f}",
        f"{statistics.median(steps):g}" if steps else "",
    ]


if __name__ == "__main__":
    main()
