"""Records: measurements, trials, confirmations, and the run they belong to.

Each field is defined once, here: shards, the database and the import of records derive from these dataclasses.
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
"""One point of a space: the name of each knob and its value, in plain JSON values."""


class Status(StrEnum):
    """How a candidate ended. All values except `OK` are failures, and are recorded as data."""

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
        latency_s: time of one kernel run, averaged over `repeats`; None for a failure.
        cv: coefficient of variation of the repeats (standard deviation over mean).
        repeats: number of times that were averaged.
        build_s: wall-clock time of building the candidate.
        run_s: wall-clock time of loading, checking and timing it.
        relative_error: relative L2 distance of its result from one computed in float64; None if there was no result
            or it contained NaN.
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
    """One measured config, as stored; the numbers of a run's trials begin at 0.

    Attributes:
        iteration: the iteration of the tuner's loop that chose it.
        elapsed_s: tuning seconds since the run began, summed over interruptions.
        gflops: billions of floating-point operations a second; None for a failure.
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
    """A trial that was measured again, because a fault of the machine may have made it fail."""

    number: int
    measurement: Annotated[Measurement, FLAT]
    gflops: float | None
    created_at: Time


@dataclass(frozen=True)
class Confirmation:
    """A top config measured again, interleaved with its rivals and with more repeats.

    Attributes:
        after_trials: number of trials that the run had when it was confirmed.
        rank: rank within this round of confirmations; 0 for the chosen one, which is the fastest or ties with it, and
            then by latency.
    """

    config: Config = field(hash=False)
    measurement: Annotated[Measurement, FLAT]
    after_trials: int
    rank: int
    created_at: Time


@dataclass(frozen=True)
class SpaceFacts:
    """The size of a task's space and, from a random sample, the share that its constraints reject.

    Attributes:
        rejections: by reason, the number of sampled configs that this constraint is the first to reject.
    """

    size: int
    sampled: int
    rejections: Mapping[str, int] = field(hash=False)


@dataclass(frozen=True)
class Source:
    """A run of a similar task, whose first trials another run learns from before its first measurement."""

    task_key: Key
    run_key: Key
    trials: int


@dataclass(frozen=True)
class Run:
    """One tuning of one task: the tuner's settings without the number of trials, which may be raised later.

    Attributes:
        host, versions, threads: the machine and the software it ran with; not part of the key.
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
        """The content key of the task and of everything that decides which configs are proposed."""
        return content_key([self.task_key, self.preset, self.seed, self.tuner_version, dict(self.settings)])
