"""PoCL and Oclgrind as engines that judge CUDA candidates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod
from typing import Self

from anole.errors import TargetError
from anole.record import Config
from anole.targets.base import Template
from anole.task import Workload
from anole.testing.gpu_verdict import Outcome, Verdict, by_error
from anole.testing.opencl import oclgrind
from anole.testing.opencl.candidate import Candidate
from anole.testing.opencl.lowering import NotCoveredError
from anole.testing.opencl.pocl import Method, Pocl, PoclError

_MOST_COPIED = 300_000
"""Characters of source, times threads of a block, that work-items are replicated for: a million take a minute."""


class _OpenClEngine(ABC):
    """An engine that executes what a candidate is lowered to."""

    def judge(self, template: Template, workload: Workload, config: Config) -> Verdict:
        """Lowers a candidate, executes it and compares its result."""
        try:
            return self.judge_lowered(Candidate.of(template, workload, config))
        except NotCoveredError as refusal:
            return Verdict(Outcome.NOT_COVERED, detail=str(refusal))

    @abstractmethod
    def judge_lowered(self, candidate: Candidate) -> Verdict:
        """Executes a candidate, or a mutant of one, and compares its result."""


class PoclEngine(_OpenClEngine):
    """Launches candidates by PoCL; finds no races. Replicating work-items covers no large blocks of much code.

    Args:
        method: how PoCL makes work-groups.
        timeout_s: seconds that a candidate may take.
    """

    def __init__(self, method: Method = Method.AUTO, timeout_s: float = 120.0) -> None:
        self._method, self._pocl = method, Pocl(method, timeout_s)

    def __enter__(self) -> Self:
        """Starts PoCL in a process of its own."""
        self._pocl.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._pocl.__exit__(*raised)

    def judge_lowered(self, candidate: Candidate) -> Verdict:
        """Launches a candidate, or a mutant of one, and compares its result."""
        copied = len(candidate.launches.source) * max(prod(launch.block) for launch in candidate.launches.launches)
        if self._method is Method.REPLICATED and copied > _MOST_COPIED:
            return Verdict(Outcome.NOT_COVERED, detail="the block has too many threads to replicate so much code")
        try:
            ran = self._pocl.run(candidate.launches, candidate.inputs)
        except PoclError as failure:
            return Verdict(Outcome.FAILED, detail=str(failure))
        error = candidate.relative_error(ran.output)
        if ran.damaged:
            return Verdict(Outcome.INVALID, error, f"changed what it must not: {', '.join(ran.damaged)}")
        return Verdict(by_error(error), error)


class OclgrindEngine(_OpenClEngine):
    """Interprets candidates by Oclgrind.

    Args:
        timeout_s: seconds that one launch of a candidate may take.
    """

    def __init__(self, timeout_s: float = 300.0) -> None:
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        """Checks that Oclgrind is installed."""
        if (reason := oclgrind.absence()) is not None:
            raise TargetError(reason)
        return self

    def __exit__(self, *raised: object) -> None:
        """Does nothing: every launch is a process of its own."""

    def judge_lowered(self, candidate: Candidate) -> Verdict:
        """Interprets a candidate, or a mutant of one, and compares its result."""
        try:
            report = oclgrind.check(candidate.launches, candidate.inputs, self._timeout_s)
        except oclgrind.OclgrindError as failure:
            return Verdict(Outcome.FAILED, detail=str(failure))
        error = candidate.relative_error(report.output)
        detail = "\n\n".join(report.first)
        if report.races or report.divergences:
            return Verdict(Outcome.RACY, error, detail)
        return Verdict(by_error(error) if report.is_clean else Outcome.INVALID, error, detail)
