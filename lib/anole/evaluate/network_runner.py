"""The role of runners, which check, time and run builds; `anole.targets.base.NetworkHandlers` names their classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from anole.documents.build import Build
from anole.documents.evaluation import Latency, LoadLatency
from anole.evaluate.comparison import Comparison
from anole.evaluate.interleave import Pace
from anole.evaluate.perturbed import AveragedComparison


class NetworkRunner(Protocol):
    """Runs builds on one target, which is present; constructed from the target.

    Call it in a separate process: TVM, torch and ONNX Runtime set their number of threads when they start.

    Attributes:
        threads: number of threads that run a network.
        is_exact: whether `compare` itself checks that a build is bit-exact. Otherwise a build is correct if it is
            close to the references.
    """

    threads: int
    is_exact: bool

    def compare(self, folder: Path, build: Build, inputs: Sequence[NDArray[Any]], pace: Pace) -> list[Latency]:
        """Returns a build's relative error and speedup against each of its references.

        Args:
            folder: folder of the build.
            build: the build's description.
            inputs: the network's inputs, on which it is timed.
            pace: how long to measure.

        Raises:
            BuildError: the build cannot be run or, if `is_exact`, is wrong.
            ExtractError: the model, which is a reference, cannot be loaded.
        """

    def time_under_load(
        self, folder: Path, build: Build, references: Sequence[str], counts: Sequence[int], pace: Pace
    ) -> list[LoadLatency]:
        """Returns the latencies of a build and of its references beside busy processes; not called if `is_exact`.

        Args:
            folder: folder of the build.
            build: the build's description.
            references: names of the references that `compare` returned.
            counts: numbers of busy processes.
            pace: length and number of the turns.

        Raises:
            AnoleError: the build cannot be run, or an engine or a busy process ended too early.
        """

    def check_redrawn(self, folder: Path, build: Build) -> Comparison:
        """Compares a build of other weights with the same weights in torch; called only if not `is_exact`.

        Args:
            folder: folder of the build whose weights were drawn, see `anole.extract.weights`.
            build: the build's description.

        Raises:
            BuildError: the build cannot be run.
            ExtractError: the model, which is the reference, cannot be loaded.
        """

    def compare_exactly(self, folder: Path, build: Build) -> tuple[Comparison, Comparison]:
        """Compares a build with its network in double precision; called only if not `is_exact`.

        The second comparison is that of the most exact reference in single precision.

        Args:
            folder: folder of the build.
            build: the build's description.

        Raises:
            BuildError: the build cannot be run, or the network cannot be computed in double precision.
            ExtractError: the model, which is the reference, cannot be loaded.
        """

    def compare_means(self, folder: Path, build: Build, reference: str) -> AveragedComparison:
        """Compares a build with a reference on average over nearby inputs; called only if not `is_exact`.

        Args:
            folder: folder of the build.
            build: the build's description.
            reference: the reference's name.

        Raises:
            BuildError: the build cannot be run.
            ExtractError: the model, which is the reference, cannot be loaded.
        """

    def run(self, folder: Path, build: Build, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Returns the outputs of a build, in order.

        Raises:
            BuildError: the build cannot be run.
        """
