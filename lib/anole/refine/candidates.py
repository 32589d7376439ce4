"""What each candidate of a task takes within a network, and which serves the network best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from anole.documents.build import Build
from anole.documents.receipt import Receipt, Receipts
from anole.errors import BuildError
from anole.record import Config

Positions = Mapping[str, int]
"""By the task's key, which of its candidates a network is compiled with."""


@dataclass(frozen=True)
class Candidate:
    """A config of a task that is tried within a network.

    Attributes:
        latency_alone_s: of one call when the task was tuned.
        latency_s: of one call within the network; None where it was not timed, such as for a config that cannot be
            scheduled there.
    """

    config: Config = field(hash=False)
    latency_alone_s: float
    latency_s: float | None = None


Candidates = Mapping[str, Sequence[Candidate]]
"""Of each task, by its key; the first is the best alone."""


def candidates_of(receipts: Receipts, n: int) -> dict[str, list[Candidate]]:
    """Returns the first n candidates of every task that is tuned.

    Raises:
        BuildError: a receipt names only the fastest config.
    """
    found = {}
    for key, receipt in receipts.items():
        if receipt.config is None:
            continue
        if not receipt.rivals:
            remedy = "`snakemake --forcerun tune` writes it anew, which measures nothing twice"
            raise BuildError(f"the receipt of the task {key} names no rivals of its config; {remedy}")
        found[key] = [Candidate(rival.config, rival.latency_s) for rival in receipt.rivals[:n]]
    return found


def positions_of_round(candidates: Candidates, number: int) -> dict[str, int]:
    """Returns the candidates of a round: those of its number, and the best alone of tasks that have not so many."""
    return {key: number if number < len(of_task) else 0 for key, of_task in candidates.items()}


def with_candidates(receipts: Receipts, candidates: Candidates, positions: Positions) -> dict[str, Receipt]:
    """Returns the receipts as if these candidates had been the best alone."""
    made = dict(receipts)
    for key, position in positions.items():
        candidate = candidates[key][position]
        made[key] = replace(made[key], config=candidate.config, latency_s=candidate.latency_alone_s)
    return made


def seconds_per_call(build: Build, kernels_s: Mapping[str, float]) -> dict[str, float]:
    """Returns what one call of each tuned task takes in a build, averaged over all kernels that hold the task.

    Args:
        build: the build's description; a task that could not be scheduled as it was tuned is left out.
        kernels_s: by the kernel's name, the seconds of all of its calls together.
    """
    tuned = {task.key for task in build.tasks if task.matched == "tuned"}
    calls: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for kernel in build.kernels or ():
        key = kernel.task
        if key in tuned and kernel.name in kernels_s:
            calls[key] = calls.get(key, 0) + kernel.calls
            seconds[key] = seconds.get(key, 0.0) + kernels_s[kernel.name]
    return {key: seconds[key] / calls[key] for key in calls}


def timed(candidates: Candidates, rounds: Sequence[Sequence[Mapping[str, float]]]) -> dict[str, list[Candidate]]:
    """Returns candidates with what they take within the network, the median over its timings.

    Args:
        candidates: without their latencies there.
        rounds: by number and timing, the seconds of one call of each task; without timings where a round failed.
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
    """Returns which candidate takes least within the network; of equals, and where none was timed, the first."""
    latencies_s = [math.inf if each.latency_s is None else each.latency_s for each in candidates]
    return latencies_s.index(min(latencies_s))
