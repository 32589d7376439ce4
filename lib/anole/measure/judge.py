"""Makes measurements of what candidates' runs returned, and remembers the least latency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace

from anole.errors import DeviceLostError
from anole.host.process import CallError, WorkerTimeout
from anole.measure.artifacts import Artifacts
from anole.measure.builders import Built
from anole.measure.jobs import Timed
from anole.record import Measurement, Status
from anole.search.ties import Compared

FAILURES = (CallError, DeviceLostError)
"""The exceptions of a run that fails through the candidate's own fault."""


class Judge:
    """Judges the candidates of one task.

    Args:
        tolerance: largest relative error of a right answer.
        best_s: least latency measured before, in seconds; None if there is none.
        artifacts: receives the artifacts of the candidates that have run.

    Attributes:
        best_s: least latency so far.
    """

    def __init__(self, tolerance: float, best_s: float | None, artifacts: Artifacts) -> None:
        self._tolerance, self.best_s, self._artifacts = tolerance, best_s, artifacts

    def trial(self, candidate: Built, outcome: Sequence[Timed] | Exception, run_s: float) -> Measurement:
        """Returns the measurement of a candidate that ran alone.

        Args:
            candidate: the candidate; its artifact is kept if it is among the fastest.
            outcome: what its run returned, or one of `FAILURES`.
            run_s: wall-clock seconds of its run.
        """
        if isinstance(outcome, Exception):
            status = Status.RUN_TIMEOUT if isinstance(outcome, WorkerTimeout) else Status.RUN_ERROR
            measurement = Measurement(status, str(outcome), build_s=candidate.build_s, run_s=run_s)
        else:
            (timed,) = outcome
            measurement = self._judged(candidate, timed, run_s)
        self._artifacts.take(candidate, measurement.latency_s)
        return measurement

    def comparison(self, candidates: Sequence[Built], outcome: Sequence[Timed], run_s: float) -> list[Measurement]:
        """Returns the measurements of rivals that took turns, in order; those that were not built failed."""
        timed, each_s = iter(outcome), run_s / max(1, len(outcome))
        return [candidate.failure or self._compared(candidate, next(timed), each_s) for candidate in candidates]

    def _compared(self, candidate: Built, timed: Timed, run_s: float) -> Compared:
        return Compared(**vars(self._judged(candidate, timed, run_s)), least_ratio=timed.least_ratio)

    def _judged(self, candidate: Built, timed: Timed, run_s: float) -> Measurement:
        error = timed.relative_error if math.isfinite(timed.relative_error) else None
        measured = Measurement(Status.OK, build_s=candidate.build_s, run_s=run_s, relative_error=error)
        if timed.timing is None:
            reason = f"relative error {timed.relative_error:.3g}; at most {self._tolerance:g} is allowed"
            return replace(measured, status=Status.WRONG_ANSWER, error=reason)
        self.best_s = min(timed.timing.latency_s, self.best_s or math.inf)
        return replace(measured, **asdict(timed.timing))
