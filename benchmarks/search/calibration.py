"""Measure the value of trials on other layers for the first trials on a new layer, as CSV.

    anole calibrate cpu
    python -m benchmarks.search.calibration db/shards > docs/results/data/search/calibration.csv

Each recorded layer is left out in turn, and its configs are ranked by merit, and by `anole`'s surrogate after a warm
start. A ratio is the lowest latency of the first one or four configs over the lowest of all; `random` is the mean
over all. Latencies were measured once, so noise increases all ratios.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from anole.search.presets import PRESETS
from anole.search.roles import History
from anole.store.content import ShardContent
from anole.store.shard import read_shard, shard_paths
from anole.targets import get_target
from anole.tune.transfer import find_sources, read_prior
from benchmarks.common.arguments import described
from benchmarks.common.rows import print_rows

FIRST = (1, 4)
COLUMNS = ("layer", "configs", "random", *(f"{by}_{n}" for by in ("merit", "warm") for n in FIRST))


def main() -> None:
    """Print a row for each layer."""
    parser = described(__doc__)
    parser.add_argument("shards", type=Path, help="folder of the trials")
    shards = parser.parse_args().shards
    print_rows(COLUMNS, (row for path in shard_paths(shards) for row in rows_of(read_shard(path), shards)))


def rows_of(content: ShardContent, shards: Path) -> Iterator[dict[str, object]]:
    """Yield the row of a layer, unless no other layer is similar."""
    task, trials = content.task, [trial for trial in content.trials if trial.measurement.latency_s]
    space = get_target(task.target).space(task.workload)
    prior = read_prior(shards, find_sources(shards, task), space)
    if prior is None or space.merit is None:
        return
    vectors = space.vectors_of(trial.config for trial in trials)
    surrogate = PRESETS["anole"].surrogate.start(space)
    surrogate.fit(History(space, task.workload.flop, prior))
    ratios = np.array([trial.measurement.latency_s for trial in trials], dtype=np.float64)
    ratios /= ratios.min()
    orders = {"merit": space.merit(space.columns(vectors)), "warm": surrogate.score(vectors)}
    best = {
        f"{by}_{n}": f"{ratios[np.argsort(-scores, kind='stable')[:n]].min():.4f}"
        for by, scores in orders.items()
        for n in FIRST
    }
    mean = float(np.exp(np.log(ratios).mean()))
    yield {"layer": task.label, "configs": len(trials), "random": f"{mean:.4f}", **best}


if __name__ == "__main__":
    main()
