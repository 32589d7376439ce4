"""Records: measurements, trials, confirmations, and the run they belong to.

A field is written down here once: shards, the database and its exchange derive from these dataclasses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any

from anole.keys import Key, Time, content_key

Config = Mapping[str, Any]
"""One point of a space: the name of each knob and its value, in plain JSON values."""

FLAT = "flat"
"""Annotates a dataclass whose fields stand, when stored, among those of the dataclass that holds it."""

LATER = "later"
"""Annotates a field that files of an older version lack; they have its default."""


class Status(StrEnum):
    """How a candidate ended; all but `OK` are failures, and data."""

    OK = "ok"
    REJECTED = "rejected"
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    RUN_ERROR = "run_error"
    RUN_TIMEOUT = "run_timeout"
    WRONG_ANSWER = "wrong_answer"


def utc_now() -> str:
    """Returns the present time as ISO 8601 text in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Measurement:
    """What one candidate cost to run; times are in seconds, lower is better.

    Attributes:
        latency_s: of one run of the kernel, averaged over `repeats`; None for a failure.
        latency_std_s: standard deviation over the repeats.
        cv: coefficient of variation of the repeats (standard deviation over mean).
        repeats: how many times were averaged.
        build_s: wall clock of building the candidate.
        run_s: wall clock of loading, checking and timing it.
        relative_error: of its answer, as the L2 distance from one computed in float64; None where there was none, or
            some of it was not even a number.
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
    """One config measured, as stored.

    Attributes:
        number: position in the run, from 0.
        iteration: the round of the tuner's loop that chose it.
        config: knob name to value.
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
class Confirmation:
    """A top config measured again, interleaved with its rivals and with more repeats.

    Attributes:
        after_trials: how many trials the run had when it was confirmed.
        rank: 0 for the fastest of this round of confirmations.
    """

    config: Config = field(hash=False)
    measurement: Annotated[Measurement, FLAT]
    after_trials: int
    rank: int
    created_at: Time


@dataclass(frozen=True)
class SpaceFacts:
    """How large a task's space is, and how much of it can never work, by a random sample.

    Attributes:
        size: how many configs there are, valid or not.
        sampled: how many were asked.
        rejections: of the sampled, how many each constraint is the first to reject, by its reason.
    """

    size: int
    sampled: int
    rejections: Mapping[str, int] = field(hash=False)


@dataclass(frozen=True)
class Source:
    """A run of a similar task that another run learns from before it measures anything.

    Attributes:
        trials: how many of its trials, the first ones.
    """

    task_key: Key
    run_key: Key
    trials: int


@dataclass(frozen=True)
class Run:
    """One tuning of one task: the tuner's settings, without the number of trials, which may be raised.

    Attributes:
        settings: every part of the tuner with its hyper-parameters, in plain JSON values.
        host, versions, threads: where and with what it ran; not part of the key.
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
