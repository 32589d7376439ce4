"""Validation of records beyond their types: only successes have a latency, and all values are plausible."""

from __future__ import annotations

import math

from anole.record import Confirmation, Measurement, Remeasurement, SpaceFacts, Status, Trial

_MIN_LATENCY_S, _MAX_LATENCY_S = 1e-10, 1e6
"""Range of plausible latencies: 0.1 ns to about 12 days."""

_NON_NEGATIVE = ("latency_std_s", "cv", "build_s", "run_s", "relative_error")

_OK = Status.OK
"""A constant because looking up an enum member is slow in Python 3.11, and every record is checked."""

_MAX_SPEED_ERROR = 1e-9
"""Maximum relative rounding error of a speed."""


def find_problem(record: object, flop: int) -> str | None:
    """Return the first problem of a record, whose task has `flop` operations, or None."""
    match record:
        case Trial():
            if record.iteration < 0:
                return f"iteration is {record.iteration}"
            return _negative_problem("elapsed_s", record.elapsed_s) or _timed_problem(record, flop)
        case Remeasurement():
            return _timed_problem(record, flop)
        case Confirmation():
            for name in ("after_trials", "rank"):
                if getattr(record, name) < 0:
                    return f"{name} is {getattr(record, name)}"
            return _measurement_problem(record.measurement)
        case SpaceFacts(size, sampled, rejections):
            if size < 0 or sampled <= 0:
                return f"a space has {size} configs and {sampled} samples"
            invalid = {reason: n for reason, n in rejections.items() if type(n) is not int or not 0 <= n <= sampled}
            return f"the rejections of {sampled} samples are {invalid}" if invalid else None
    return None


def _timed_problem(record: Trial | Remeasurement, flop: int) -> str | None:
    problem = _measurement_problem(record.measurement)
    if problem is not None:
        return problem
    latency_s, gflops = record.measurement.latency_s, record.gflops
    expected = None if latency_s is None else flop / latency_s / 1e9
    if expected is None or gflops is None:
        return None if gflops is expected else f"gflops is {gflops} and latency_s is {latency_s}"
    if not math.isclose(gflops, expected, rel_tol=_MAX_SPEED_ERROR):
        return f"gflops is {gflops}; {flop} operations in {latency_s} s are {expected}"
    return None


def _measurement_problem(measurement: Measurement) -> str | None:
    latency_s = measurement.latency_s
    if (measurement.status is _OK) != (latency_s is not None):
        return f"the status is {measurement.status} and latency_s is {latency_s}; only ok has a latency"
    if latency_s is not None and not _MIN_LATENCY_S <= latency_s <= _MAX_LATENCY_S:
        return f"latency_s is {latency_s}; it must be from {_MIN_LATENCY_S:g} to {_MAX_LATENCY_S:g}"
    if measurement.repeats < 0:
        return f"repeats is {measurement.repeats}"
    for name in _NON_NEGATIVE:
        problem = _negative_problem(name, getattr(measurement, name))
        if problem is not None:
            return problem
    return None


def _negative_problem(name: str, value: float | None) -> str | None:
    """Return a problem if a value is negative or not finite, otherwise None."""
    return None if value is None or 0.0 <= value < math.inf else f"{name} is {value}"
