"""The candidates of each task, their times within a network, and the choice of the fastest there."""

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
"""The position of the candidate that a network is compiled with, by the task's key."""


@dataclass(frozen=True)
class Candidate:
    """A config of a task that is tried within a network.

    Attributes:
        latency_alone_s: time of one call, measured when the task was tuned.
        latency_s: time of one call within the network; None if it was not timed, for example because the config
            cannot be scheduled there.
    """

    config: Config = field(hash=False)
    latency_alone_s: float
    latency_s: float | None = None


Candidates = Mapping[str, Sequence[Candidate]]
"""The candidates of each task, by the task's key; the first is the fastest alone."""


def candidates_of(receipts: Receipts, n: int) -> dict[str, list[Candidate]]:
    """Return the first n candidates of every tuned task.

    Raises:
        BuildError: a receipt names only the fastest config.
    """
    found = {}
    for key, receipt in receipts.items():
        if receipt.config is None:
            continue
        if not receipt.rivals:
            remedy = "`snakemake --forcerun tune` writes it again without measuring any config twice"
            raise BuildError(f"the receipt of the task {key} names no rivals of its config; {remedy}")
        found[key] = [Candidate(rival.config, rival.latency_s) for rival in receipt.rivals[:n]]
    return found


def positions_of_round(candidates: Candidates, number: int) -> dict[str, int]:
    """Return the positions of a round's candidates: its number, or 0 (the fastest alone) for tasks with fewer."""
    return {key: number if number < len(of_task) else 0 for key, of_task in candidates.items()}


def with_candidates(receipts: Receipts, candidates: Candidates, positions: Positions) -> dict[str, Receipt]:
    """Return the receipts with these candidates in place of the configs that are fastest alone."""
    made = dict(receipts)
    for key, position in positions.items():
        candidate = candidates[key][position]
        made[key] = replace(made[key], config=candidate.config, latency_s=candidate.latency_alone_s)
    return made


def seconds_per_call(build: Build, kernels_s: Mapping[str, float]) -> dict[str, float]:
    """Return the time of one call of each tuned task in a build, averaged over all kernels that contain the task.

    The total seconds of each kernel's calls are given by the kernel's name. A task whose tuned config could not be
    scheduled is left out.
    """
    tuned = {task.key for task in build.tasks if task.matched == "tuned"}
    calls, seconds = Counter[str](), defaultdict[str, float](float)
    for kernel in build.kernels or ():
        if kernel.task in tuned and kernel.name in kernels_s:
            calls[kernel.task] += kernel.calls
            seconds[kernel.task] += kernels_s[kernel.name]
    return {key: seconds[key] / calls[key] for key in calls}


def timed(candidates: Candidates, rounds: Sequence[Sequence[Mapping[str, float]]]) -> dict[str, list[Candidate]]:
    """Return the candidates with their latencies within the network: each is the median over its timings.

    The seconds of one call of each task are given by round and timing; a round that failed has no timings.
    """
    found = {}
    for key, of_task in candidates.items():
        seconds = [[timing[key] for timing in timings if key in timing] for timings in rounds[: len(of_task)]]
        found[key] = [
            replace(candidate, latency_s=median(taken_s) if taken_s else None)
            for candidate, taken_s in zip(of_task, seconds, strict=True)
        ]
    return found


def choose(candidates: Sequence[Candidate]) -> int:
    """Return the position of the candidate that is fastest within the network; the first if equal or not timed."""
    latencies_s = [math.inf if each.latency_s is None else each.latency_s for each in candidates]
    return latencies_s.index(min(latencies_s))
