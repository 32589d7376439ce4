"""What measuring leaves behind: measurements, trials, confirmations, and the run they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

from anole.keys import content_key

Config = Mapping[str, Any]
"""One point of a space: the name of each knob and its value, in plain JSON values."""


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
    measurement: Measurement
    elapsed_s: float
    gflops: float | None
    created_at: str

    def to_json(self) -> dict[str, Any]:
        """Returns the plain, flat form, as stored in a shard and in the table ``trial``."""
        return _flat(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Returns the trial that `to_json` made plain."""
        own = {name: plain[name] for name in ("number", "iteration", "config", "elapsed_s", "gflops", "created_at")}
        return cls(measurement=_measurement_from_json(plain), **own)


@dataclass(frozen=True)
class Confirmation:
    """A top config measured again, interleaved with its rivals and with more repeats.

    Attributes:
        after_trials: how many trials the run had when it was confirmed.
        rank: 0 for the fastest of this round of confirmations.
    """

    config: Config = field(hash=False)
    measurement: Measurement
    after_trials: int
    rank: int
    created_at: str

    def to_json(self) -> dict[str, Any]:
        """Returns the plain, flat form, as stored in a shard and in the table ``confirmation``."""
        return _flat(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Returns the confirmation that `to_json` made plain."""
        own = {name: plain[name] for name in ("config", "after_trials", "rank", "created_at")}
        return cls(measurement=_measurement_from_json(plain), **own)


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

    task_key: str
    run_key: str
    trials: int


@dataclass(frozen=True)
class Run:
    """One tuning of one task: the tuner's settings, without the number of trials, which may be raised.

    Attributes:
        settings: every part of the tuner with its hyper-parameters, in plain JSON values.
        host, versions, threads: where and with what it ran; not part of the key.
    """

    task_key: str
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

    def to_json(self) -> dict[str, Any]:
        """Returns the plain form, as stored at the head of a shard and in the table ``run``."""
        return {"key": self.key, **asdict(self)}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Returns the run that `to_json` made plain."""
        return cls(**{name: value for name, value in plain.items() if name in cls.__dataclass_fields__})


def _flat(record: Trial | Confirmation) -> dict[str, Any]:
    plain = asdict(record)
    measurement = plain.pop("measurement")
    return {**plain, "config": dict(record.config), **measurement}


def _measurement_from_json(plain: Mapping[str, Any]) -> Measurement:
    fields = {name: plain[name] for name in Measurement.__dataclass_fields__ if name in plain}
    return Measurement(**{**fields, "status": Status(plain["status"])})
