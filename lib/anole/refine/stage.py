"""The refine stage: time the best candidates of a build's tasks within its network, where caches behave differently."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from anole.documents.manifest import Order, network_path, read_manifest
from anole.documents.receipt import Receipts, Refined, TriedConfig, read_receipts, write_receipt
from anole.errors import BuildError
from anole.evaluate.timing.turns import TurnSchedule
from anole.measure.device_access import device_access
from anole.record import utc_now
from anole.refine.candidates import (
    Candidates,
    Positions,
    best_candidates,
    choose,
    set_times,
    variant_positions,
    with_candidates,
)
from anole.refine.stopwatch import Stopwatch, TimedPair
from anole.refine.variants import Compiler, time_variants
from anole.targets import get_profilable

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Effort:
    """The measuring effort.

    Attributes:
        turns: number of turns of each variant, in alternation.
        seconds: min duration of one turn.
        schedule: the schedule of the final comparison.
    """

    turns: int = 5
    seconds: float = 0.5
    schedule: TurnSchedule = field(default_factory=TurnSchedule)


@dataclass(frozen=True)
class Refinement:
    """The outcome of trying candidates within a network: their latencies, and the chosen ones."""

    candidates: Candidates
    positions: Positions
    pair: TimedPair | None = None
    """The chosen candidates compared with those that are fastest alone; None if these are the same or could not run."""


def refine_network(
    build: str,
    order: Order,
    manifest_path: Path,
    receipt_paths: Iterable[Path],
    n_candidates: int,
    output: Path,
    effort: Effort = Effort(),
) -> None:
    """Time the best candidates of a build's tasks within its network, and write receipts of the fastest.

    Each variant changes the candidates of all tasks: a kernel's effect on its neighbors is small compared with
    its own time. The combination of the candidates that are fastest within the network is kept unless it is slower than
    the candidates that are fastest alone. If the CPU is absent, the receipts are copied unchanged.

    Raises:
        DocumentError: the manifest is missing, broken or stale, or a receipt is missing or broken.
        BuildError: the build is not for the CPU, is locked or has refinement disabled, or the network cannot be
            compiled or run.
    """
    if order.lock is not None:
        raise BuildError(f"{build}: is locked; `anole lock --remove {build}` unlocks it, and then it can be refined")
    if n_candidates < 1:
        raise BuildError(f"{build}: has refinement disabled; set `refine` to the number of candidates to try per task")
    manifest, receipts = read_manifest(manifest_path, order.origin), read_receipts(receipt_paths)
    target = get_profilable(manifest.origin.target_description)
    if target is None:
        kind = manifest.origin.target_description["kind"]
        raise BuildError(f"{build}: is for {kind}; only builds for the CPU can be refined")
    candidates = best_candidates(receipts, n_candidates)
    if (absence := target.absence()) is not None:
        _log.warning("%s: is not refined: %s", build, absence)
        candidates = {}
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{build}.", dir=output.parent) as scratch:
        access, network = device_access(target), network_path(manifest_path)
        compiler = Compiler(build, order, manifest, network, receipts, candidates, access, Path(scratch))
        with Stopwatch(target, access) as stopwatch:
            outcome = _refine(compiler, stopwatch, candidates, effort)
    _report(build, outcome)
    write_receipt(output, _receipts(build, outcome, receipts))


def _refine(compiler: Compiler, stopwatch: Stopwatch, candidates: Candidates, effort: Effort) -> Refinement:
    fastest_alone = variant_positions(candidates, 0)
    if not candidates:
        return Refinement(candidates, fastest_alone)
    times = time_variants(compiler, stopwatch, candidates, effort.turns, effort.seconds)
    timed_candidates = set_times(candidates, times)
    chosen = {key: choose(task_candidates) for key, task_candidates in timed_candidates.items()}
    if chosen == fastest_alone:
        return Refinement(timed_candidates, fastest_alone)
    try:
        (refined, _), (unrefined, _) = compiler.compile(chosen), compiler.compile(fastest_alone)
        pair = stopwatch.compare(refined, unrefined, effort.schedule)
    except BuildError as error:
        _log.warning("the combination of the fastest candidates fails: %s", error)
        return Refinement(timed_candidates, fastest_alone)
    return Refinement(timed_candidates, chosen if pair.ratio <= 1 else fastest_alone, pair)


def _receipts(build: str, outcome: Refinement, receipts: Receipts) -> Refined:
    """Return the receipts of the chosen candidates, with their measured latencies."""
    pair = outcome.pair
    return Refined(
        build=build,
        created_at=utc_now(),
        latency_s=None if pair is None else pair.latency_s,
        unrefined_latency_s=None if pair is None else pair.rival_latency_s,
        ratio=None if pair is None else pair.ratio,
        kept=any(outcome.positions.values()),
        receipts=tuple(
            replace(receipt, refined=_tried_configs(outcome, key))
            for key, receipt in with_candidates(receipts, outcome.candidates, outcome.positions).items()
        ),
    )


def _tried_configs(outcome: Refinement, key: str) -> tuple[TriedConfig, ...]:
    return tuple(
        TriedConfig(candidate.config, candidate.latency_s, candidate.latency_alone_s, number == outcome.positions[key])
        for number, candidate in enumerate(outcome.candidates.get(key, ()))
    )


def _report(build: str, outcome: Refinement) -> None:
    n_changed = sum(map(bool, outcome.positions.values()))
    summary = f"{n_changed} of {len(outcome.positions)} tasks have another config" if n_changed else "unchanged"
    if outcome.pair is None:
        _log.info("%s: %s", build, summary)
        return
    _log.info(
        "%s: %s: %.3f ms with the configs fastest within the network, %.3f ms with those fastest alone",
        *(build, summary, 1e3 * outcome.pair.latency_s, 1e3 * outcome.pair.rival_latency_s),
    )
