"""The fastest program of a layer on each accelerator, from exhaustive trials of its search space."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anole.errors import StoreError
from anole.record import Trial
from anole.space.space import Columns
from anole.task import Task
from anole.text_format import pluralize
from anole_vta.accelerator.accesses import accesses_of
from anole_vta.accelerator.energy import TYPICAL_NM, unit_energies
from anole_vta.geometry import Geometry
from anole_vta.target import VtaTarget, as_conv2d
from anole_vta.templates.conv2d import lower_conv2d
from anole_vta.templates.design import EPILOGUE, HARDWARE, design_of, pad_to_blocks


@dataclass(frozen=True, eq=False)
class FastestPrograms:
    """The cycles and access counts, shape (n_counted,), of the fastest programs of some layers on an accelerator."""

    cycles: float
    accesses: NDArray[np.int64]


def fastest_programs(
    task: Task, trials: Sequence[Trial], technology_nm: int = TYPICAL_NM
) -> dict[Geometry, FastestPrograms]:
    """Return the fastest program of a layer on every accelerator that runs it; ties go to the lowest energy.

    Raises:
        StoreError: some program was not simulated.
    """
    target, workload = VtaTarget(task.target), as_conv2d(task.workload)
    space = target.space(task.workload)
    vectors, identities = space.vectors(space.all_valid_indices), space.all_identities
    latencies_s = _latencies_s(identities, space.identities(space.vectors_of([t.config for t in trials])), trials)
    if missing := len(np.unique(identities[np.isnan(latencies_s)])):
        raise StoreError(f"{task.label}: {pluralize(missing, 'program')} not simulated yet")
    counts: dict[int, NDArray[np.int64]] = {}

    def accesses(row: int) -> NDArray[np.int64]:
        if (identity := int(identities[row])) not in counts:
            design = design_of(workload, target.geometry, space.config(vectors[row]))
            padded = pad_to_blocks(workload, design.geometry)
            counts[identity] = accesses_of(lower_conv2d(padded, design.schedule, design.geometry, EPILOGUE))
        return counts[identity]

    fastest = {}
    for rows in _fastest_rows(space.columns(vectors), latencies_s):
        geometry = target.geometry_of(space.config(vectors[rows[0]]))
        energies, cycles = unit_energies(geometry, technology_nm), round(latencies_s[rows[0]] * target.frequency_hz)
        fastest[geometry] = FastestPrograms(cycles, min(map(accesses, rows), key=lambda n: energies.of(n, 0.0)))
    return fastest


def _latencies_s(
    identities: NDArray[np.int64], tried: NDArray[np.int64], trials: Sequence[Trial]
) -> NDArray[np.float64]:
    """Return the latency of each of n configs, shape (n,): infinity if its program failed, NaN if it was not tried."""
    latencies_s = np.array([np.inf if (s := trial.measurement.latency_s) is None else s for trial in trials])
    if not len(tried):
        return np.full(len(identities), np.nan)
    order = np.argsort(tried)
    nearest = order[np.minimum(np.searchsorted(tried, identities, sorter=order), len(tried) - 1)]
    return np.where(tried[nearest] == identities, latencies_s[nearest], np.nan)


def _fastest_rows(columns: Columns, latencies_s: NDArray[np.float64]) -> Iterator[list[int]]:
    """Yield, for each accelerator with a working config, the rows of all configs that tie for the lowest latency."""
    hardware = np.stack([columns[name] for name in HARDWARE], axis=1)
    ranked = np.lexsort((latencies_s, *hardware.T))
    changes = (np.diff(hardware[ranked], axis=0) != 0).any(axis=1)
    for rows in np.split(ranked, np.flatnonzero(changes) + 1):
        tied = rows[latencies_s[rows] == latencies_s[rows[0]]]
        if np.isfinite(latencies_s[rows[0]]):
            yield tied.tolist()
