"""Measure how much time the evaluators save, and how well they rank the best configs, as CSV.

    python -m benchmarks.search.evaluators > docs/results/data/search/evaluators.csv

For every layer, configs of all speeds are built once and timed by every evaluator in turn; the first evaluator rotates
from config to config. Each evaluator's result is compared with n = 500 runs. A second n = 500 shows the best agreement
possible on this machine.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anole.host.lock import device_lock
from anole.measure.measurer import Measurer
from anole.measure.options import MeasureOptions
from anole.record import Config
from anole.search.evaluators.fixed import Fixed
from anole.search.presets import read_tuner
from anole.search.roles import Evaluator, Timing
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.task import Task
from benchmarks.common.arguments import chosen, described
from benchmarks.common.rows import print_rows
from benchmarks.search.variants import LAYERS

if TYPE_CHECKING:
    from anole.targets.base import Timeable

REFERENCE, AGAIN = "n = 500", "n = 500 again"
TUNERS: dict[str, Mapping[str, Any]] = {
    REFERENCE: {"preset": "autotvm", "evaluator": {"number": 50, "repeats": 10}},
    AGAIN: {"preset": "autotvm", "evaluator": {"number": 50, "repeats": 10}},
    "AutoTVM (4 x 3)": {"preset": "autotvm"},
    "AdaTune": {"preset": "adatune"},
    "anole": {"preset": "anole"},
}
"""The evaluators, as parts of the tuners that use them."""

POOL, CONFIGS, TOP = 150, 30, 10
COLUMNS = ("layer", "evaluator", "configs", "run_s", "n_500_over_it", "same_top_10", "spearman", "median_cv")


@dataclass(frozen=True)
class Timed:
    """An evaluator's results for n configs: latencies, cv and the seconds it took, each of shape (n,)."""

    latency_s: NDArray[np.float64]
    cv: NDArray[np.float64]
    run_s: NDArray[np.float64]


def main() -> None:
    """Print a row for each layer and evaluator."""
    parser = described(__doc__)
    parser.add_argument("--layers", default="L2,L6,L8", help="comma-separated")
    parser.add_argument("--configs", type=int, default=CONFIGS, help="number of configs per layer")
    given = parser.parse_args()
    print_rows(COLUMNS, (row for layer in chosen(given.layers, LAYERS) for row in compare(layer, given.configs)))


def compare(layer: str, n_configs: int) -> Iterator[dict[str, object]]:
    """Yield the row of each evaluator on a layer."""
    evaluators = {name: read_tuner(plain).evaluator for name, plain in TUNERS.items()}
    description = describe_cpu()
    os.environ.update(get_target(description).environment())
    task = Task(LAYERS[layer], description, get_target(description).template_version(LAYERS[layer]))
    timed = time_all(task, spread(task, n_configs), evaluators)
    reference = timed[REFERENCE]
    for name, found in timed.items():
        own = (found.run_s.mean(), reference.run_s.sum() / found.run_s.sum(), *agreement(found, reference))
        figures = (f"{figure:.4g}" for figure in (*own, np.median(found.cv)))
        yield dict(zip(COLUMNS, (layer, name, len(found.run_s), *figures), strict=True))


def spread(task: Task, n: int) -> list[Config]:
    """Return n configs of a random pool: the fastest n // 3, and others spread evenly over the remaining ranks."""
    space = get_target(task.target).space(task.workload)
    pool = [space.config(vector) for vector in space.sample(POOL, np.random.default_rng(0))]
    with Measurer(task, MeasureOptions(Fixed())) as measurer:
        latencies_s = [measurement.latency_s for measurement in measurer.measure(pool)]
    working = [row for row, latency_s in enumerate(latencies_s) if latency_s is not None]
    ranking = sorted(working, key=lambda row: latencies_s[row] or np.inf)
    n_top = min(n // 3, len(ranking))
    rest = np.linspace(n_top, len(ranking) - 1, num=min(n, len(ranking)) - n_top).astype(int)
    return [pool[ranking[rank]] for rank in (*range(n_top), *rest)]


def time_all(task: Task, configs: Sequence[Config], evaluators: Mapping[str, Evaluator]) -> dict[str, Timed]:
    """Time configs with all evaluators in turn."""
    found: dict[str, list[tuple[Timing, float]]] = {name: [] for name in evaluators}
    best_s: dict[str, float] = {}
    names = list(evaluators)
    for number, kernel in enumerate(kernels(task, configs)):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            began_s = time.perf_counter()
            timing = evaluators[name].evaluate(kernel, best_s.get(name))
            found[name].append((timing, time.perf_counter() - began_s))
            best_s[name] = min(timing.latency_s, best_s.get(name, np.inf))
    return {
        name: Timed(*np.array([(timing.latency_s, timing.cv, run_s) for timing, run_s in timings]).T)
        for name, timings in found.items()
    }


def kernels(task: Task, configs: Sequence[Config]) -> Iterator[Timeable]:
    """Build configs and yield their kernels in random order, while holding the device."""
    target, order = get_target(task.target), np.random.default_rng(1).permutation(len(configs))
    runner = target.runner(task.workload)
    with tempfile.TemporaryDirectory() as folder, device_lock(str(task.target["kind"])):
        for number in order:
            artifact = Path(folder) / f"{number}.so"
            target.build(task.workload, configs[number], artifact)
            yield runner.load(artifact, configs[number])


def agreement(found: Timed, reference: Timed) -> tuple[int, float]:
    """Return the number of common configs in the top ten, and Spearman's correlation over all configs."""
    from scipy.stats import spearmanr

    same = set(np.argsort(found.latency_s)[:TOP]) & set(np.argsort(reference.latency_s)[:TOP])
    return len(same), float(spearmanr(found.latency_s, reference.latency_s).statistic)


if __name__ == "__main__":
    main()
