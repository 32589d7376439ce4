"""The records of tuning: runs, and their measurements, trials and confirmations.

Shards, the database schema and the import of records are derived from these dataclasses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any

from anole.codec import FLAT
from anole.keys import Key, Time, content_key

Config = Mapping[str, Any]
"""One point of a search space: the value of each knob by its name, in plain JSON values."""


class Status(StrEnum):
    """The outcome of measuring a candidate. All values except `OK` are failures, which are also recorded."""

    OK = "ok"
    REJECTED = "rejected"
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    RUN_ERROR = "run_error"
    RUN_TIMEOUT = "run_timeout"
    WRONG_ANSWER = "wrong_answer"


def utc_now() -> str:
    """Return the current time as ISO 8601 text in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Measurement:
    """The result of measuring one candidate; times are in seconds, lower is better.

    Attributes:
        latency_s: time of one kernel run, as estimated from `repeats` timings; None for a failure.
        cv: coefficient of variation of the repeats (standard deviation over mean).
        repeats: number of timings that were averaged.
        build_s: wall-clock time of building the candidate.
        run_s: wall-clock time of loading, checking and timing the candidate.
        relative_error: relative L2 distance from a float64 reference; None if there was no result or it contained NaN.
    """

    status: Status
    error: str | None = None
    latency_s: float | None = None
    latency_std_s: float | None = None
    cv: float | None = None
    repeats: int = 0
    build_s: float = 0.0
    run_s: float = 0.0
    relative_error: float | None = None


@dataclass(frozen=True)
class Trial:
    """One measured config, as stored; a run's trials are numbered from 0.

    Attributes:
        iteration: the iteration of the tuner's loop that chose the config.
        elapsed_s: tuning seconds since the run began, excluding interruptions.
        gflops: billions of floating-point operations per second; None for a failure.
    """

    number: int
    iteration: int
    config: Config = field(hash=False)
    measurement: Annotated[Measurement, FLAT]
    elapsed_s: float
    gflops: float | None
    created_at: Time


@dataclass(frozen=True)
class Remeasurement:
    """A repeated measurement of a failed trial, whose failure may have been a fault of the machine."""

    number: int
    measurement: Annotated[Measurement, FLAT]
    gflops: float | None
    created_at: Time


@dataclass(frozen=True)
class Confirmation:
    """A top config measured again, interleaved with the other top configs and with more repeats.

    Attributes:
        after_trials: number of trials that the run had at that time.
        rank: rank within this round of confirmations: 0 for the chosen config, which is the fastest or tied with the
            fastest; the others are ordered by latency.
    """

    config: Config = field(hash=False)
    measurement: Annotated[Measurement, FLAT]
    after_trials: int
    rank: int
    created_at: Time


@dataclass(frozen=True)
class SpaceFacts:
    """The size of a task's space, and how many configs of a random sample its constraints reject.

    Attributes:
        rejections: by constraint, the number of sampled configs that it is the first to reject.
    """

    size: int
    sampled: int
    rejections: Mapping[str, int] = field(hash=False)


@dataclass(frozen=True)
class Source:
    """A run of a similar task whose first trials warm-start another run."""

    task_key: Key
    run_key: Key
    trials: int


@dataclass(frozen=True)
class Run:
    """The tuning of one task with one seed: the tuner's settings, without the number of trials, which may grow later.

    Attributes:
        host, versions, threads: the machine and software; not part of the key.
    """

    task_key: Key
    preset: str
    seed: int
    tuner_version: int
    settings: Mapping[str, Any] = field(hash=False)
    threads: int = 1
    host: Mapping[str, Any] = field(default_factory=dict, hash=False)
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)

    @cached_property
    def key(self) -> str:
        """The content key of the task and of everything that determines which configs are proposed."""
        return content_key([self.task_key, self.preset, self.seed, self.tuner_version, dict(self.settings)])
