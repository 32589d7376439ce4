"""The outcome of trying candidates within a network, and the document that records it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anole.documents.receipt import Receipts, Refined, TriedConfig
from anole.record import utc_now
from anole.refine.candidates import Candidate, Candidates, Positions, with_candidates
from anole.refine.stopwatch import Comparison


@dataclass(frozen=True)
class Refinement:
    """The outcome of trying candidates within a network.

    Attributes:
        candidates: the candidates of each task, with their latencies within the network.
        positions: the chosen candidates, which the network is to be compiled with.
        comparison: the chosen candidates against the fastest alone; None if they are the same or could not run.
    """

    candidates: Candidates
    positions: Positions
    comparison: Comparison | None = None

    def receipts(self, build: str, receipts: Receipts) -> Refined:
        """Returns the receipts of the chosen candidates, together with the comparison.

        Args:
            build: the build's name.
            receipts: the receipts of all of its tasks, as written by tuning.
        """
        comparison = self.comparison
        return Refined(
            build=build,
            created_at=utc_now(),
            latency_s=None if comparison is None else comparison.latency_s,
            unrefined_latency_s=None if comparison is None else comparison.rival_latency_s,
            ratio=None if comparison is None else comparison.ratio,
            kept=any(self.positions.values()),
            receipts=tuple(
                replace(receipt, refined=_tried(self.candidates.get(key, ()), self.positions.get(key)))
                for key, receipt in with_candidates(receipts, self.candidates, self.positions).items()
            ),
        )


def _tried(candidates: Sequence[Candidate], position: int | None) -> tuple[TriedConfig, ...]:
    return tuple(
        TriedConfig(candidate.config, candidate.latency_s, candidate.latency_alone_s, number == position)
        for number, candidate in enumerate(candidates)
    )
