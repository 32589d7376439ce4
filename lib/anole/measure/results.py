"""The results of runs: measurements, the best latency so far, and the artifacts of the fastest candidates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from operator import itemgetter

from anole.errors import DeviceLostError
from anole.host.process import CallError, WorkerTimeout
from anole.keys import canonical_json
from anole.measure.builders import Built
from anole.measure.worker_functions import Timed
from anole.record import Config, Measurement, Status
from anole.search.ties import Compared

FAILURES = (CallError, DeviceLostError)
"""Exceptions of a run for which the candidate is to blame."""

_MAX_KEPT = 64
"""Default maximum number of candidates whose artifacts are kept."""


class Results:
    """The measurements of one task's candidates, made from the return values of their runs.

    The artifacts of the fastest candidates are kept, so confirming these needs no second build; others are removed.

    Args:
        max_relative_error: maximum relative error of a correct result.
        best_s: minimum latency of earlier measurements; the attribute is updated with every run.
        max_kept: maximum number of artifacts to keep.
    """

    def __init__(self, max_relative_error: float, best_s: float | None = None, max_kept: int = _MAX_KEPT) -> None:
        self._max_relative_error, self.best_s, self._max_kept = max_relative_error, best_s, max_kept
        self._kept: dict[str, tuple[float, Built]] = {}

    def of_one(self, candidate: Built, outcome: Sequence[Timed] | Exception, run_s: float) -> Measurement:
        """Return the measurement of a candidate that ran alone; the outcome is its result or one of `FAILURES`."""
        if isinstance(outcome, Exception):
            status = Status.RUN_TIMEOUT if isinstance(outcome, WorkerTimeout) else Status.RUN_ERROR
            measurement = Measurement(status, str(outcome), build_s=candidate.build_s, run_s=run_s)
        else:
            (timed,) = outcome
            measurement = self._make_measurement(candidate, timed, run_s)
        self.keep(candidate, measurement.latency_s)
        return measurement

    def interleaved_measurements(
        self, candidates: Sequence[Built], outcome: Sequence[Timed], run_s: float
    ) -> list[Measurement]:
        """Return the measurements of interleaved candidates; the outcome covers only candidates that were built."""
        timed, per_run_s = iter(outcome), run_s / max(1, len(outcome))
        return [candidate.failure or self._make_compared(candidate, next(timed), per_run_s) for candidate in candidates]

    def keep(self, candidate: Built, latency_s: float | None) -> None:
        """Keep a candidate's artifact while it is among the fastest; remove it immediately if the candidate failed."""
        key = canonical_json(dict(candidate.config))
        if key in self._kept:
            return
        if latency_s is None:
            candidate.artifact.unlink(missing_ok=True)
            return
        self._kept[key] = latency_s, candidate
        if len(self._kept) > self._max_kept:
            slowest = max(self._kept, key=lambda kept_key: self._kept[kept_key][0])
            self._kept.pop(slowest)[1].artifact.unlink(missing_ok=True)

    @property
    def fastest(self) -> Built | None:
        """The fastest candidate so far; None if none has worked."""
        return min(self._kept.values(), key=itemgetter(0))[1] if self._kept else None

    def find(self, config: Config) -> Built | None:
        """Return the candidate of a config; None if its artifact is not kept."""
        entry = self._kept.get(canonical_json(dict(config)))
        return None if entry is None else entry[1]

    def _make_compared(self, candidate: Built, timed: Timed, run_s: float) -> Compared:
        return Compared(**vars(self._make_measurement(candidate, timed, run_s)), min_ratio=timed.min_ratio)

    def _make_measurement(self, candidate: Built, timed: Timed, run_s: float) -> Measurement:
        error = timed.relative_error if math.isfinite(timed.relative_error) else None
        measurement = Measurement(Status.OK, build_s=candidate.build_s, run_s=run_s, relative_error=error)
        if timed.timing is None:
            reason = f"relative error {timed.relative_error:.3g}; at most {self._max_relative_error:g} is allowed"
            return replace(measurement, status=Status.WRONG_ANSWER, error=reason)
        self.best_s = min(timed.timing.latency_s, self.best_s or math.inf)
        return replace(measurement, **asdict(timed.timing))
