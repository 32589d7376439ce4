"""Tables of recorded latencies of entire spaces, on which searches run without hardware."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.errors import StoreError
from anole.record import Config, Measurement, Status, Trial
from anole.search.settings import TunerSettings
from anole.search.state import Subject
from anole.search.watch import Watch
from anole.space.space import Space
from anole.targets import get_target
from anole.task import Conv2d, Workload
from anole.testing.in_memory import tune_in_memory

_MAX_CONFIGS = 1 << 24
"""Limit on the size of a space with a table."""


@dataclass(frozen=True)
class Table:
    """The latency of every valid config of a space.

    Attributes:
        workload: the measured workload.
        space: the workload's space, or a restricted part of it.
        latencies_s: latencies of the valid configs in the order of their indices, shape (n_valid,); NaN is a failure.
    """

    workload: Workload
    space: Space
    latencies_s: NDArray[np.float64]

    @property
    def best_s(self) -> float:
        """The lowest latency."""
        return float(np.nanmin(self.latencies_s))

    @cached_property
    def costs_s(self) -> NDArray[np.float64]:
        """The minimized cost of every valid config, its latency over its worth, shape (n_valid,).

        NaN is a failure, and infinity a config with zero worth.
        """
        with np.errstate(divide="ignore"):
            return self.latencies_s / self.space.worths(
                self.space.vectors(_valid_indices(self.space)), self.latencies_s
            )

    @cached_property
    def min_cost_s(self) -> float:
        """The lowest cost."""
        return float(np.nanmin(self.costs_s))

    def rows(self, configs: Sequence[Config]) -> NDArray[np.int64]:
        """Return the indices of valid configs in the arrays of this table, shape (n,)."""
        vectors = np.array([self.space.vector(config) for config in configs])
        return np.searchsorted(_valid_indices(self.space), self.space.indices(vectors))

    def measure(self, configs: Sequence[Config]) -> Iterator[Measurement]:
        """Look up the measurements of configs."""
        for latency_s in self.latencies_s[self.rows(configs)].tolist():
            if np.isnan(latency_s):
                yield Measurement(Status.RUN_ERROR, error="failed when the table was recorded")
            else:
                yield Measurement(Status.OK, latency_s=latency_s)


@dataclass(frozen=True)
class Replay:
    """The trials of a search on a table.

    Attributes:
        trials: the trials in order; `elapsed_s` is only the time of the search.
        iterations: statistics of each iteration's search, by the iteration's number.
    """

    trials: tuple[Trial, ...]
    iterations: Mapping[int, Mapping[str, float]]


def read_table(path: Path) -> Table:
    """Read a table of ``benchmarks/search/record.py``.

    Raises:
        StoreError: the file is not a table, or the template's space has changed since.
    """
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        workload = Conv2d(**{name: _as_tuple(value) for name, value in plain["workload"].items()})
        space = get_target(plain["target"]).space(workload).restricted(plain["restriction"])
        latencies_s = np.array(plain["latency_us"], dtype=np.float64) / 1e6
        recorded = list(plain["cardinalities"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: is not a table ({type(error).__name__}: {error})") from error
    actual, expected = (recorded, len(latencies_s)), (space.cardinalities.tolist(), len(_valid_indices(space)))
    if actual != expected:
        raise StoreError(
            f"{path}: was recorded on a space of cardinalities {actual[0]} with {actual[1]} valid configs; "
            f"{workload.label} now has {expected[0]} and {expected[1]}; record it again"
        )
    return Table(workload, space, latencies_s)


def opened(table: Table, space: Space) -> Table:
    """Return the table of a larger space with the same knobs; configs that only the larger space has are failures."""
    vectors = table.space.vectors(_valid_indices(table.space))
    for column, (knob, larger) in enumerate(zip(table.space.knobs, space.knobs, strict=True)):
        vectors[:, column] = np.array([larger.values.index(value) for value in knob.values])[vectors[:, column]]
    latencies_s = np.full(space.size, np.nan)
    latencies_s[space.indices(vectors)] = table.latencies_s
    return Table(table.workload, space, latencies_s)


def replay(
    table: Table, settings: TunerSettings, n_trials: int, seed: int, ends_at_the_optimum: bool = False
) -> Replay:
    """Tune on a table instead of hardware, optionally ending at the optimum."""
    trials: list[Trial] = []
    iterations: dict[int, Mapping[str, float]] = {}
    subject = Subject(table.space, table.workload.flop, table.workload.label)

    def add(trial: Trial) -> None:
        trials.append(trial)
        if ends_at_the_optimum and table.costs_s[table.rows([trial.config])[0]] <= table.min_cost_s:
            raise _FoundError

    with suppress(_FoundError):
        watch = Watch(iterations.__setitem__, add)
        tune_in_memory(subject, settings, table.measure, n_trials, seed=seed, watch=watch)
    return Replay(tuple(trials), iterations)


class _FoundError(Exception):
    """A signal that ends a search at the optimum."""


def _valid_indices(space: Space) -> NDArray[np.int64]:
    if space.size > _MAX_CONFIGS:
        raise StoreError(f"a space of {space.size} configs is too large for a table; {_MAX_CONFIGS} fit")
    return space.all_valid_indices


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
