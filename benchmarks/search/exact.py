"""The experiment on exact tables: every search method on exhaustively measured spaces with a known optimum.

The spaces come from the simulated accelerator and from real hardware. Tables replace measurements, so there is no
noise, and background load has no effect: seconds are CPU time. A run ends after the papers' 16 iterations, which are
1024 trials in batches of 64, at the optimum, or after the trials of its variant.

GPU spaces are read from T4 files in the folder that the environment variable ``HUB`` names, such as the FAIR Benchmark
Hub for Auto-Tuning (DOI 10.5281/zenodo.15364124).
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anole.bench.ask_tell import Replay, replay
from anole.bench.problem import Problem
from anole.bench.tables import files, load
from anole.search.loop import TUNER_VERSION
from anole.search.settings import TunerSettings
from benchmarks.common.rows import read_rows
from benchmarks.search.experiment import Experiment, Job, Row, version_of
from benchmarks.search.variants import OF_ALL, TABLE_VARIANTS, VARIANTS, WITHOUT_MERIT, sized_as, tuner_of
from kit.quality import batch_sizes

TRIALS, SEEDS, ITERATIONS = 1024, 30, 16
FIRST_SEEDS = 10
FEWER_SEEDS = {"GP+CSA": 11, "release": 11, "release not learning": 8, "chameleon not learning": 11}
"""The number of seeds for variants whose runs take much longer than others, and are in few claims."""

CLAIMS = Path(__file__).parents[1] / "tables/claims.csv"
"""The papers' claims (`benchmarks.search.claims`); the variants in them are run first."""

_ALL = {**VARIANTS, **TABLE_VARIANTS}

LOGGED = ("steps", "queries", "drawn_between")
"""Logged figures of the searches in a run; rows have their medians."""

CHECKPOINTS = (16, 64, 128, 192, 256, 384, 512, 768, 1024)
_VERSIONS = {"open": 3}
"""Since version 2, no program is tried twice, and a run ends at the optimum; since version 3, a run in an open space
does not depend on earlier runs in its process."""

_NEAR = 0.01
"""The relative extra cost over the optimum at which a search's trials and seconds are noted."""


@dataclass(frozen=True)
class SpaceKind:
    """A kind of spaces: its compared variants, and the families of its problems; a family has one problem per layer."""

    variants: Sequence[str]
    families: Sequence[str]

    def files(self) -> dict[str, Path]:
        """Return the file of each layer's problem."""
        return {layer: path for family in self.families for layer, path in files(family).items()}

    def read(self, layer: str) -> Problem:
        """Return the problem of a layer."""
        return load(next(f"{family}/{layer}" for family in self.families if layer in files(family)))


@dataclass(frozen=True)
class Hub(SpaceKind):
    """The spaces of others: the T4 files in the folder that the environment variable ``HUB`` names, if it is set."""

    def files(self) -> dict[str, Path]:
        """Return the T4 file of each space by name."""
        folder = os.environ.get("HUB")
        paths = sorted(Path(folder).glob("*_T4.json*")) if folder else ()
        return {path.name.partition("_T4")[0]: path for path in paths}

    def read(self, layer: str) -> Problem:
        """Return the problem of a space."""
        return load(self.files()[layer])


SPACES: Mapping[str, SpaceKind] = {
    "constrained": SpaceKind(tuple(TABLE_VARIANTS), ("vta_constrained",)),
    "open": SpaceKind(WITHOUT_MERIT, ("vta_open",)),
    # These spaces have no description.
    "gpu": Hub(tuple(name for name in (*WITHOUT_MERIT, *OF_ALL) if name != "autotvm, knobs alone"), ()),
}
"""All kinds of spaces with exact tables."""


def held_out(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of all layers except the development split's, on which settings were chosen."""
    development = files("vta_open", "dev")
    return [row for row in rows if row["layer"] not in development]


def claimed_variants() -> dict[str, set[str]]:
    """Return the variants in the papers' claims, and the baseline of all comparisons, by kind of space."""
    variants = {space: {"anole cold", "random"} for space in SPACES}
    for claim in read_rows(CLAIMS):
        for space in claim["spaces"].split():
            variants[space] |= {claim["over"], claim["under"]}
    return variants


def jobs() -> Iterator[Job]:
    """Yield layer, space, variant, seed and version, by importance; seeds are the outer loop of each stage.

    The variants of claims are first, then all others, each with a few seeds; then the claims in open spaces, where
    seeds differ most, and then the rest.
    """
    places, first = [(layer, space) for space, kind in SPACES.items() for layer in kind.files()], claimed_variants()
    for stage in range(4):
        for seed in range(SEEDS):
            for layer, space in places:
                for variant in SPACES[space].variants:
                    if stage == _stage(space, variant in first[space], seed) and seed < FEWER_SEEDS.get(variant, SEEDS):
                        yield layer, space, variant, str(seed), _version(layer, space, variant)


def _stage(space: str, is_claimed: bool, seed: int) -> int:
    if seed < FIRST_SEEDS:
        return 0 if is_claimed else 1
    return 2 if is_claimed and space == "open" else 3


def run(job: Job) -> Sequence[Row]:
    """Replay a search on a table."""
    layer, space, variant, seed, _ = job
    table = _table(layer, space)
    if not _ALL[variant].get("described", True):
        table = replace(table, space=replace(table.space, describe=None))
    source = sized_as(variant, _ALL)
    sizes = batch_sizes(replay(table, _settings(source), TRIALS, int(seed)).trials) if source else ()
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    run = replay(table, _settings(variant, sizes), _n_trials(variant), int(seed), ends_at_the_optimum=True)
    cpu_share = (time.process_time() - began_cpu_s) / (time.perf_counter() - began_s)
    gaps = table.gaps([trial.config for trial in run.trials])
    return [{**_figures(run, gaps), **_time_to_optimum(run, gaps, cpu_share)}]


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


def _time_to_optimum(found: Replay, gaps: NDArray[np.float64], cpu_share: float) -> Row:
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


def _n_trials(variant: str) -> int:
    return min(TRIALS, _ALL[variant].get("trials", TRIALS))


@cache
def _table(layer: str, space: str) -> Problem:
    return SPACES[space].read(layer)


@cache
def _version(layer: str, space: str, variant: str) -> str:
    """Return a run's version, which covers the table, the tuner's settings and the search's code."""
    table, sizes = SPACES[space].files()[layer].read_bytes().hex(), sized_as(variant, _ALL)
    control = f"('greedy', '{sizes}')" if sizes else "None"
    settings, version = _settings(variant).to_json(), _VERSIONS.get(space, 2)
    more = [] if _ALL[variant].get("described", True) else ["not described"]
    return version_of(table, space, settings, control, TUNER_VERSION, _n_trials(variant), version, *more)


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
