"""The stage that tries the best candidates of a build's tasks within its network: alone, they meet other caches."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from anole.documents.manifest import read_manifest
from anole.documents.order import Order
from anole.documents.receipt import read_receipts, write_receipt
from anole.errors import BuildError
from anole.evaluate.interleave import Pace
from anole.measure.site import site_of
from anole.refine.candidates import Candidates, candidates_of, choose, positions_of_round, timed
from anole.refine.outcome import Refinement
from anole.refine.rounds import Compiler, time_rounds
from anole.refine.stopwatch import Stopwatch
from anole.targets import get_target

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Effort:
    """How long is measured.

    Attributes:
        turns: how often the kernels of every round are timed; the rounds take turns.
        seconds: how long a turn of one round takes, at least.
        pace: of the comparison at the end.
    """

    turns: int = 5
    seconds: float = 0.5
    pace: Pace = field(default_factory=Pace)


def refine_network(
    build: str,
    order: Order,
    manifest_path: Path,
    receipt_paths: Iterable[Path],
    n_candidates: int,
    output: Path,
    effort: Effort = Effort(),
) -> None:
    """Tries the best candidates of a build's tasks within its network and writes receipts of those that serve it best.

    All tasks change their candidates at once, round by round: what a kernel does to its neighbours is small beside
    what it takes itself. The combination of the best is kept unless it is slower than that of the best alone.

    Args:
        build: its name.
        order: what is compiled.
        manifest_path: of its model on its target.
        receipt_paths: of the model's tasks.
        n_candidates: how many of each task are tried.
        output: where the receipts go; those of the tasks as they are where the processor is absent.
        effort: how long is measured.

    Raises:
        DocumentError: the manifest is missing, broken or stale, or a receipt is missing or broken.
        BuildError: the build is not for the processor or not to be refined, or the network cannot be compiled or run.
    """
    if n_candidates < 1:
        raise BuildError(f"{build}: is not to be refined; `refine` says how many candidates of each task are tried")
    manifest, receipts = read_manifest(manifest_path, order.origin), read_receipts(receipt_paths)
    target = get_target(manifest.origin.target_description).observable()
    if target is None:
        kind = manifest.origin.target_description["kind"]
        raise BuildError(f"{build}: is for {kind}; only builds for the processor are refined")
    candidates = candidates_of(receipts, n_candidates)
    absence = target.absence()
    if absence is not None:
        _log.warning("%s: is not refined: %s", build, absence)
        candidates = {}
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{build}.", dir=output.parent) as scratch:
        site = site_of(target)
        compiler = Compiler(build, order, manifest, receipts, candidates, site, Path(scratch))
        with Stopwatch(target, site) as stopwatch:
            found = _refine(compiler, stopwatch, candidates, effort)
    _report(build, found)
    write_receipt(output, found.receipts(build, receipts))


def _refine(compiler: Compiler, stopwatch: Stopwatch, candidates: Candidates, effort: Effort) -> Refinement:
    n_rounds = max(map(len, candidates.values()), default=0)
    alone = positions_of_round(candidates, 0)
    if not n_rounds:
        return Refinement(candidates, alone)
    within = timed(candidates, time_rounds(compiler, stopwatch, candidates, n_rounds, effort.turns, effort.seconds))
    chosen = {key: choose(of_task) for key, of_task in within.items()}
    if chosen == alone:
        return Refinement(within, alone)
    try:
        (refined, _), (unrefined, _) = compiler.compile(chosen), compiler.compile(alone)
        comparison = stopwatch.compare(refined, unrefined, effort.pace)
    except BuildError as error:
        _log.warning("the best candidates do not go together: %s", error)
        return Refinement(within, alone)
    return Refinement(within, chosen if comparison.ratio <= 1 else alone, comparison)


def _report(build: str, found: Refinement) -> None:
    n_changed, comparison = sum(map(bool, found.positions.values())), found.comparison
    said = f"{n_changed} of {len(found.positions)} tasks have another config" if n_changed else "stays as it was"
    if comparison is None:
        _log.info("%s: %s", build, said)
        return
    _log.info(
        "%s: %s: %.3f ms with what was best within the network, %.3f ms with the best alone",
        build, said, 1e3 * comparison.latency_s, 1e3 * comparison.rival_latency_s,
    )  # fmt: skip
