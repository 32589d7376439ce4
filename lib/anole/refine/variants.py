"""Compile and time variants of a network: in each, every task has another candidate."""

from __future__ import annotations

import logging
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from anole.compiler.build import BuildSettings, compile_build
from anole.documents.build import Build
from anole.documents.manifest import Manifest, Order
from anole.documents.receipt import Receipts
from anole.errors import BuildError
from anole.extract.imported import read_network
from anole.measure.device_access import DeviceAccess
from anole.refine.candidates import Candidates, Positions, seconds_per_call, variant_positions, with_candidates
from anole.refine.stopwatch import Stopwatch

if TYPE_CHECKING:
    from anole.extract.imported import Imported

_log = logging.getLogger(__name__)


class Compiler:
    """A compiler that builds a network with combinations of its tasks' candidates in a scratch folder, each once.

    Nothing is timed on the device while it compiles.
    """

    def __init__(
        self,
        build: str,
        order: Order,
        manifest: Manifest,
        network: Path,
        receipts: Receipts,
        candidates: Candidates,
        access: DeviceAccess,
        scratch: Path,
    ) -> None:
        self._model, self._settings = order.model_spec, BuildSettings.of(build, order)
        self._manifest, self._path, self._receipts, self._candidates = manifest, network, receipts, candidates
        self._access, self._scratch = access, scratch
        self._builds: dict[tuple[int, ...], tuple[Path, Build]] = {}

    def compile(self, positions: Positions) -> tuple[Path, Build]:
        """Return the folder and the description of the build with these candidates.

        Raises:
            BuildError: the network cannot be compiled.
        """
        key = tuple(positions.values())
        if key not in self._builds:
            folder = self._scratch / str(len(self._builds))
            receipts = with_candidates(self._receipts, self._candidates, positions)
            with self._access.building():
                built = compile_build(self._model, self._manifest, self._settings, receipts, folder, self._network)
            self._builds[key] = folder, built
        return self._builds[key]

    @cached_property
    def _network(self) -> Imported:
        return read_network(self._path)


def time_variants(
    compiler: Compiler, stopwatch: Stopwatch, candidates: Candidates, n_turns: int, seconds: float
) -> list[list[dict[str, float]]]:
    """Return the seconds of one call of each task, by variant and turn; a variant that fails has no turns.

    The variants take turns of at least `seconds`, which exposes all of them to the same states of the machine.

    Raises:
        BuildError: the first variant fails, which has the candidates that are fastest alone.
    """
    n_variants = max(map(len, candidates.values()))
    turns: list[list[dict[str, float]]] = [[] for _ in range(n_variants)]
    remaining = list(range(n_variants))
    for _ in range(n_turns):
        for number in tuple(remaining):
            try:
                folder, build = compiler.compile(variant_positions(candidates, number))
                kernels_s = stopwatch.kernels_s(folder, seconds)
            except BuildError as error:
                if number == 0:
                    raise
                _log.warning("candidate %d of each task is skipped: %s", number, error)
                remaining.remove(number)
                turns[number] = []
            else:
                turns[number].append(seconds_per_call(build, kernels_s))
    return turns
