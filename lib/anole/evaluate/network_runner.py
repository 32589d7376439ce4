"""The role of what checks, times and runs compiled networks; `anole.targets.base.NetworkHandlers` names it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from anole.documents.build import Build
from anole.documents.evaluation import Latency
from anole.evaluate.interleave import Pace


class NetworkRunner(Protocol):
    """Runs the builds for one target, which is present; it is made from the target.

    Call it in a process of its own: TVM, torch and ONNX Runtime take their number of threads when they start.

    Attributes:
        threads: how many run a network.
        is_exact: whether `compare` itself makes sure that a build is right, to the bit. Otherwise a build is right
            where it is near to the references.
    """

    threads: int
    is_exact: bool

    def compare(self, folder: Path, build: Build, inputs: Sequence[NDArray[Any]], pace: Pace) -> list[Latency]:
        """Returns how near a build is to each of its references, and how fast beside it.

        Args:
            folder: of the build.
            build: what it says of itself.
            inputs: of the network.
            pace: how long is measured.

        Raises:
            BuildError: the build cannot be run or, where that can be known for certain, is wrong.
            ExtractError: the model, which is a reference, cannot be loaded.
        """

    def run(self, folder: Path, build: Build, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Returns the outputs of a build, in order.

        Raises:
            BuildError: the build cannot be run.
        """
