"""The interface of network compilers; `anole.targets.base.NetworkEntryPoints` names one for each target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from anole.compiler.matching import Match
from anole.config.entries import ModelSpec
from anole.documents.build import BuiltKernel
from anole.documents.receipt import Receipts
from anole.targets.base import CppRuntime

if TYPE_CHECKING:
    from anole.extract.graph import Layer
    from anole.extract.imported import Imported


@dataclass(frozen=True)
class MatchedNetwork:
    """A normalized network, its anchor operators in execution order, and its tasks with their best configs."""

    model: ModelSpec
    imported: Imported
    layers: Sequence[Layer]
    matches: list[Match]
    receipts: Receipts


@dataclass(frozen=True)
class Compiled:
    """The result of compiling a network for its target.

    Attributes:
        matches: the network's tasks, with the configs that were actually compiled.
        runs_on, threads, memory, kernels, accelerator: see `anole.documents.build.Build`.
        cpp_runtime: the requirements of a C++ program that loads the network; None if it is not a TVM library.
    """

    matches: list[Match]
    runs_on: str | None = None
    threads: int | None = None
    memory: Mapping[str, int] | None = field(default=None, hash=False)
    kernels: tuple[BuiltKernel, ...] | None = None
    accelerator: Mapping[str, Any] | None = None
    cpp_runtime: CppRuntime | None = None


class NetworkCompiler(Protocol):
    """A compiler of networks for one kind of target."""

    def __call__(self, network: MatchedNetwork, target: Any, folder: Path) -> Compiled:
        """Write all files of a build except its description into an empty folder.

        Raises:
            BuildError: the network cannot be compiled.
        """
