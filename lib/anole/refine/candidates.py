"""The candidates of each task, their latencies within a network, and the choice of the fastest."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from anole.documents.build import Build
from anole.documents.receipt import Receipt, Receipts
from anole.errors import BuildError
from anole.record import Config

Positions = Mapping[str, int]
"""The index of each task's candidate that a network is compiled with, by the task's key."""


@dataclass(frozen=True)
class Candidate:
    """A config of a task to try within a network.

    Attributes:
        latency_alone_s: latency of one call, measured when the task was tuned.
        latency_s: latency of one call within the network; None if it was not timed, for example because the config
            cannot be scheduled there.
    """

    config: Config = field(hash=False)
    latency_alone_s: float
    latency_s: float | None = None


Candidates = Mapping[str, Sequence[Candidate]]
"""The candidates of each task, by the task's key; the first one is the fastest when timed alone."""


def best_candidates(receipts: Receipts, n: int) -> dict[str, list[Candidate]]:
    """Return the best n candidates of every tuned task.

    Raises:
        BuildError: a receipt names only the fastest config.
    """
    candidates = {}
    for key, receipt in receipts.items():
        if receipt.config is None:
            continue
        if not receipt.rivals:
            remedy = "`snakemake --forcerun tune` writes it again without measuring any config twice"
            raise BuildError(f"the receipt of the task {key} lists no competing configs; {remedy}")
        candidates[key] = [Candidate(entry.config, entry.latency_s) for entry in receipt.rivals[:n]]
    return candidates


def variant_positions(candidates: Candidates, number: int) -> dict[str, int]:
    """Return the index of each task's candidate in a variant: its number, or 0 if the task has fewer candidates."""
    return {key: number if number < len(task_candidates) else 0 for key, task_candidates in candidates.items()}


def with_candidates(receipts: Receipts, candidates: Candidates, positions: Positions) -> dict[str, Receipt]:
    """Replace the configs in receipts by the candidates at these positions."""
    updated = dict(receipts)
    for key, position in positions.items():
        candidate = candidates[key][position]
        updated[key] = replace(updated[key], config=candidate.config, latency_s=candidate.latency_alone_s)
    return updated


def seconds_per_call(build: Build, kernels_s: Mapping[str, float]) -> dict[str, float]:
    """Return the time of one call of each tuned task in a build, averaged over all kernels that contain the task.

    `kernels_s` has the total seconds of each kernel's calls, by the kernel's name. Tasks whose tuned config could not
    be scheduled are omitted.
    """
    tuned = {task.key for task in build.tasks if task.matched == "tuned"}
    calls, seconds = Counter[str](), defaultdict[str, float](float)
    for kernel in build.kernels or ():
        if kernel.task in tuned and kernel.name in kernels_s:
            calls[kernel.task] += kernel.calls
            seconds[kernel.task] += kernels_s[kernel.name]
    return {key: seconds[key] / calls[key] for key in calls}


def set_times(candidates: Candidates, variants: Sequence[Sequence[Mapping[str, float]]]) -> dict[str, list[Candidate]]:
    """Set the latencies of candidates within the network, each to the median over its turns.

    `variants` has the seconds of one call of each task, by variant and turn; a failed variant has no turns.
    """
    timed_candidates = {}
    for key, task_candidates in candidates.items():
        seconds = [[turn[key] for turn in turns if key in turn] for turns in variants[: len(task_candidates)]]
        timed_candidates[key] = [
            replace(candidate, latency_s=median(turns_s) if turns_s else None)
            for candidate, turns_s in zip(task_candidates, seconds, strict=True)
        ]
    return timed_candidates


def choose(candidates: Sequence[Candidate]) -> int:
    """Return the index of the candidate that is fastest within the network; the first in a tie or if none was timed."""
    latencies_s = [math.inf if candidate.latency_s is None else candidate.latency_s for candidate in candidates]
    return latencies_s.index(min(latencies_s))
