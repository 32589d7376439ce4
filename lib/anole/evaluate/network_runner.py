"""The protocol of network runners, which check, time and run builds; each target names its implementation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from anole.documents.build import Build
from anole.documents.evaluation import Latency, LoadLatency
from anole.evaluate.engines import Engine
from anole.evaluate.timing.turns import TurnSchedule
from anole.targets.base import Target, named_object


class NetworkRunner(Protocol):
    """A runner of builds on one target, whose hardware must be present; constructed from the target.

    Call it in a separate process: TVM, torch and ONNX Runtime set their number of threads when they start. If
    `is_exact`, only `compare` and `run` are called. All methods raise a `BuildError` if the build cannot be run, and an
    `ExtractError` if its model, which is a reference, cannot be loaded.

    Attributes:
        is_exact: whether `compare` itself checks that a build is bit-exact. Otherwise a build is correct if it is
            close to the references.
    """

    threads: int
    is_exact: bool

    def compare(self, folder: Path, build: Build, schedule: TurnSchedule) -> list[Latency]:
        """Return a build's relative error and speedup compared with each of its references.

        Raises:
            BuildError: the build cannot be run or, if `is_exact`, is wrong.
        """

    def run(self, folder: Path, build: Build, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Return the outputs of a build, in order."""

    def engine(self, folder: Path, inputs: Sequence[NDArray[Any]]) -> Engine:
        """Return the engine of a build."""

    def references(self, build: Build, inputs: Sequence[NDArray[Any]]) -> AbstractContextManager[list[Engine]]:
        """Yield the engines that `compare` compares a build with."""

    def time_under_load(
        self, folder: Path, build: Build, references: Sequence[str], counts: Sequence[int]
    ) -> list[LoadLatency]:
        """Return the latencies of a build and some of its references for each number of busy processes.

        Raises:
            AnoleError: an engine or a busy process exited too early.
        """


def runner_of(target: Target) -> NetworkRunner:
    """Return the network runner of a target."""
    runner: NetworkRunner = named_object(target.networks.runner)(target)
    return runner
