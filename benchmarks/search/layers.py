"""The experiment on this machine's processor: search methods live on the papers' layers, in both kinds of spaces.

A run's configs that were the fastest at a checkpoint are measured again at its end, in turns with the default config,
which is built without tuning. Their ratios to it are compared, since latencies seen in a search are noisy, and machines
have slower and faster hours.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from anole.keys import canonical_json, content_key
from anole.measure.cautious import AnyMeasurer, CautiousMeasurer, measurer_of
from anole.measure.options import MeasureOptions
from anole.record import Config, Status, Trial
from anole.search.loop import TUNER_VERSION
from anole.search.settings import TunerSettings
from anole.search.state import Subject
from anole.search.watch import Watch
from anole.targets import get_target
from anole.task import Task
from anole.testing.in_memory import tune_in_memory
from benchmarks.search.experiment import Experiment, Job, Row
from benchmarks.search.variants import Place, tuner_of
from tests.kit.quality import batch_sizes, incumbents, shares

NAMES = ("L8", "L7", "L6", "L2")
"""Layers of which a trial takes less than a second in open spaces, too."""

SPACES = ("open", "constrained")
COMPARED = (
    *("random", "SA+greedy", "SA+AS", "PPO+greedy", "PPO+AS", "SA+greedy batch 16", "adatune", "XGB+SA+DE"),
    *("RFEI+SA+DE", "RFEI+CSA+DE", "anole cold"),
)
SEEDS, TRIALS = 10, 256
CHECKPOINTS = (16, 64, 128, 192, 256)
"""Trials after which runs are compared; with batches of 64, only the last one is after three fits of the surrogate."""


def jobs() -> Iterator[Job]:
    """Yields layer, space, variant, seed and version; seeds are the outer loop."""
    for seed in range(SEEDS):
        for layer in NAMES:
            for space in SPACES:
                for variant in COMPARED:
                    yield layer, space, variant, str(seed), _version(layer, space, variant)


def run(job: Job) -> Sequence[Row]:
    """Tunes a layer, and measures what was found again."""
    layer, space, variant, seed, _ = job
    task, settings = _task(layer, space), _settings(variant)
    target = get_target(task.target)
    trials: list[Trial] = []
    logs: list[Mapping[str, float]] = []
    subject = Subject(target.space(task.workload), task.workload.flop, task.key)
    watch = Watch(lambda _, log: logs.append(log), trials.append)
    with measurer_of(task, MeasureOptions(settings.evaluator)) as measurer:
        began_s = time.perf_counter()
        tune_in_memory(subject, settings, measurer.measure, TRIALS, seed=int(seed), watch=watch)
        seconds = time.perf_counter() - began_s
        ratios = _confirmed(measurer, trials, target.default_config(task.workload))
    measured = [trial.measurement for trial in trials]
    return [
        {
            "trials": len(trials),
            "failed": sum(each.status is not Status.OK for each in measured),
            "seconds": f"{seconds:.1f}",
            "search_s": f"{sum(log['search_s'] for log in logs):.2f}",
            "build_s": f"{sum(each.build_s or 0.0 for each in measured):.1f}",
            "run_s": f"{sum(each.run_s or 0.0 for each in measured):.1f}",
            "batches": shares(batch_sizes(trials)),
            "repeats": shares(each.repeats for each in measured if each.latency_s),
            **ratios,
        }
    ]


def _confirmed(measurer: AnyMeasurer, trials: Sequence[Trial], default: Config) -> Row:
    """Returns the latency at each checkpoint over that of the default config, and the latter."""
    fastest = incumbents([trial.measurement.latency_s or float("nan") for trial in trials])
    at = {n: int(fastest[min(n, len(trials)) - 1]) for n in CHECKPOINTS}
    found = {n: trials[place].config for n, place in at.items() if place >= 0}
    rivals = {canonical_json(dict(config)): config for config in (default, *found.values())}
    assert isinstance(measurer, CautiousMeasurer)
    latencies_s = dict(zip(rivals, (each.latency_s for each in measurer.confirm(list(rivals.values()))), strict=True))
    base_s = latencies_s[canonical_json(dict(default))]
    ratios = {n: latencies_s[canonical_json(dict(config))] for n, config in found.items()}
    told = {f"ratio_at_{n}": "" if not base_s or not own_s else f"{own_s / base_s:.4f}" for n, own_s in ratios.items()}
    return {**told, "default_ms": "" if base_s is None else f"{1e3 * base_s:.4f}"}


@cache
def _task(layer: str, space: str) -> Task:
    return Place(space=space).task_of(layer)


def _settings(variant: str) -> TunerSettings:
    return replace(tuner_of(variant), n_confirm=0)


@cache
def _version(layer: str, space: str, variant: str) -> str:
    """Returns the version of a run: that of the task, of the tuner's settings and of the search's code."""
    return content_key([_task(layer, space).key, _settings(variant).to_json(), TUNER_VERSION, TRIALS])[:12]


LIVE = Experiment(
    "layers",
    ("layer", "space", "variant", "seed", "version"),
    (
        *("trials", "failed", "seconds", "search_s", "build_s", "run_s", "batches", "repeats"),
        *(f"ratio_at_{n}" for n in CHECKPOINTS),
        "default_ms",
    ),
    jobs,
    run,
    is_timed=True,
)
