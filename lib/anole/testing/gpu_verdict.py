"""What an engine that executes CUDA candidates without a GPU says about one of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import nan
from typing import Protocol, Self

from anole.record import Config
from anole.targets.base import Template
from anole.task import Workload


class Outcome(StrEnum):
    """What became of a candidate; the first that applies."""

    NOT_COVERED = "not covered"
    """The engine would execute other steps than a GPU."""
    FAILED = "failed"
    """It did not compile or finish."""
    RACY = "racy"
    """Nothing orders two accesses, one of them a write, or a barrier was not reached by all threads of a block."""
    INVALID = "invalid"
    """It accessed what it must not: outside a buffer, misaligned, never written, or an input that it changed."""
    WRONG = "wrong"
    """The result is too far from the reference."""
    RIGHT = "right"


@dataclass(frozen=True)
class Verdict:
    """An engine's verdict.

    Attributes:
        outcome: what became of the candidate.
        error: relative L2 distance of the result from the float64 reference; NaN without a result.
        detail: what the engine says beyond that.
    """

    outcome: Outcome
    error: float = nan
    detail: str = ""


class Engine(Protocol):
    """A context manager that executes candidates of CUDA templates without a GPU."""

    def __enter__(self) -> Self:
        """Starts the engine.

        Raises:
            TargetError: what it needs is not installed.
        """

    def __exit__(self, *raised: object) -> None:
        """Ends the engine."""

    def judge(self, template: Template, workload: Workload, config: Config) -> Verdict:
        """Executes a candidate; its own failure is a verdict and no error."""


MOST_ERROR = 3e-5
"""Above this relative error, float32 does not explain a small layer's result; Winograd's 4x4 tiles come nearest."""


def by_error(error: float) -> Outcome:
    """Returns what became of a candidate that is faulty in no other way, by its relative error."""
    return Outcome.RIGHT if error < MOST_ERROR else Outcome.WRONG
