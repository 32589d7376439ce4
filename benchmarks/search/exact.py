"""The experiment on exact tables: every search method on exhaustively measured spaces with a known optimum.

The spaces come from the simulated accelerator and, in a few cases, from real hardware. Tables replace measurements,
so there is no noise, and background load has no effect: seconds are CPU time. A run ends after the papers' 16
iterations, which are 1024 trials in batches of 64, or at the optimum.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anole.bench.ask_tell import Replay, replay
from anole.bench.problem import Problem
from anole.bench.quality import batch_sizes
from anole.bench.tables import files, load
from anole.search.loop import TUNER_VERSION
from anole.search.settings import TunerSettings
from benchmarks.search.experiment import Experiment, Job, Row, version_of
from benchmarks.search.variants import MEASURED_VARIANTS, TABLE_VARIANTS, VARIANTS, sized_as, tuner_of

TRIALS, SEEDS, ITERATIONS = 1024, 30, 16
FEWER_SEEDS = {"chameleon one by one": 3}
"""The number of seeds for variants whose runs take as long as dozens of others."""

_ALL = {**VARIANTS, **TABLE_VARIANTS, **MEASURED_VARIANTS}

LOGGED = ("steps", "queries", "drawn_between")
"""Logged figures of the searches in a run; rows have their medians."""

CHECKPOINTS = (16, 64, 128, 192, 256, 384, 512, 768, 1024)
_VERSION = 2
"""Since version 2, no program is tried twice, and a run ends at the optimum."""

_NEAR = 0.01
"""The relative extra cost over the optimum at which a search's trials and seconds are noted."""


@dataclass(frozen=True)
class SpaceKind:
    """A kind of spaces: its compared variants, and the families of its problems, each with one problem for a layer."""

    variants: Sequence[str]
    families: Sequence[str]

    def files(self) -> dict[str, Path]:
        """Return the file of each layer's problem."""
        return {layer: path for family in self.families for layer, path in files(family).items()}

    def read(self, layer: str) -> Problem:
        """Return the problem of a layer."""
        return load(next(f"{family}/{layer}" for family in self.families if layer in files(family)))


_IN_OPEN = (
    *("random", "SA+greedy", "SA+AS", "PPO+greedy", "chameleon", "adatune", "dcoc"),
    *("anole cold", "anole cold, ends early"),
)
SPACES: Mapping[str, SpaceKind] = {
    "constrained": SpaceKind(tuple(TABLE_VARIANTS), ("vta_constrained",)),
    "open": SpaceKind(_IN_OPEN, ("vta_open",)),
    "measured": SpaceKind(tuple(MEASURED_VARIANTS), ("gpu", "cpu")),
}
"""All kinds of spaces with exact tables."""


def jobs() -> Iterator[Job]:
    """Yield layer, space, variant, seed and version; seeds are the outer loop, so the first jobs cover all variants."""
    places = [(layer, space) for space, kind in SPACES.items() for layer in kind.files()]
    for seed in range(SEEDS):
        for layer, space in places:
            for variant in SPACES[space].variants:
                if seed < FEWER_SEEDS.get(variant, SEEDS):
                    yield layer, space, variant, str(seed), _version(layer, space, variant)


def run(job: Job) -> Sequence[Row]:
    """Replay a search on a table."""
    layer, space, variant, seed, _ = job
    table = _table(layer, space)
    source = sized_as(variant, _ALL)
    sizes = batch_sizes(replay(table, _settings(source), TRIALS, int(seed)).trials) if source else ()
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    found = replay(table, _settings(variant, sizes), TRIALS, int(seed), ends_at_the_optimum=True)
    cpu_share = (time.process_time() - began_cpu_s) / (time.perf_counter() - began_s)
    gaps = table.gaps([trial.config for trial in found.trials])
    return [{**_figures(found, gaps), **_reached(found, gaps, cpu_share)}]


def _figures(found: Replay, gaps: NDArray[np.float64]) -> Row:
    """Return the results of a search, and the effort of its iterations."""
    failed = [trial.measurement.latency_s is None for trial in found.trials]
    logs = list(found.iterations.values())
    return {
        "trials": len(found.trials),
        "failed": sum(failed),
        "failed_at_128": sum(failed[:128]),
        "batches": " ".join(map(str, batch_sizes(found.trials))),
        **{f"gap_at_{n}": f"{gaps[min(n, len(gaps)) - 1]:.5f}" for n in CHECKPOINTS if n <= len(gaps) or not gaps[-1]},
        "gap_at_end": f"{gaps[-1]:.5f}",
        **{name: _median([log[name] for log in logs if name in log]) for name in LOGGED},
    }


def _reached(found: Replay, gaps: NDArray[np.float64], cpu_share: float) -> Row:
    """Return the seconds of the search, and the trials and seconds until the best config is within 1 %, if ever."""
    first = next(iter(np.flatnonzero(gaps <= _NEAR + 1e-9)), None)
    return {
        "search_s": f"{cpu_share * found.trials[-1].elapsed_s:.3f}",
        "trials_to_1%": "" if first is None else str(first + 1),
        "search_s_to_1%": "" if first is None else f"{cpu_share * found.trials[first].elapsed_s:.3f}",
    }


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):g}" if values else ""


def _settings(variant: str, sizes: Sequence[int] = ()) -> TunerSettings:
    """Return a variant's settings, limited to the papers' number of iterations."""
    settings = tuner_of(variant, sizes, _ALL)
    return replace(settings, max_iterations=settings.max_iterations or ITERATIONS)


@cache
def _table(layer: str, space: str) -> Problem:
    return SPACES[space].read(layer)


@cache
def _version(layer: str, space: str, variant: str) -> str:
    """Return a run's version, which covers the table, the tuner's settings and the search's code."""
    table, control = SPACES[space].files()[layer].read_bytes().hex(), str(_ALL[variant].get("control"))
    return version_of(table, space, _settings(variant).to_json(), control, TUNER_VERSION, TRIALS, _VERSION)


TABLES = Experiment(
    "tables",
    ("layer", "space", "variant", "seed", "version"),
    (
        *("trials", "failed", "failed_at_128", "batches", *(f"gap_at_{n}" for n in CHECKPOINTS)),
        *("gap_at_end", *LOGGED, "search_s", "trials_to_1%", "search_s_to_1%"),
    ),
    jobs,
    run,
    suffix=".csv.xz",
)
