"""What came of trying candidates within a network, and the file that tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anole.record import utc_now
from anole.refine.candidates import Candidate, Candidates, Positions, Receipts, with_candidates
from anole.refine.clock import Comparison


@dataclass(frozen=True)
class Refinement:
    """What came of trying candidates within a network.

    Attributes:
        positions: of the candidates that the network is to be compiled with.
        comparison: of those that took least with the best alone; None where these are the same, or did not run.
    """

    candidates: Candidates
    positions: Positions
    comparison: Comparison | None = None

    def to_json(self, build: str, receipts: Receipts) -> dict[str, Any]:
        """Returns receipts of the candidates that the network is to be compiled with, and how it compares.

        Args:
            build: its name.
            receipts: of all of its tasks, as tuning left them.
        """
        comparison = self.comparison
        return {
            "schema": 1,
            "build": build,
            "created_at": utc_now(),
            "latency_s": None if comparison is None else comparison.latency_s,
            "unrefined_latency_s": None if comparison is None else comparison.rival_latency_s,
            "ratio": None if comparison is None else comparison.ratio,
            "kept": any(self.positions.values()),
            "receipts": [
                {**receipt, "refined": _tried(self.candidates.get(key, ()), self.positions.get(key))}
                for key, receipt in with_candidates(receipts, self.candidates, self.positions).items()
            ],
        }


def _tried(candidates: Sequence[Candidate], position: int | None) -> list[dict[str, Any]]:
    return [
        {
            "config": dict(candidate.config),
            "latency_s": candidate.latency_s,
            "latency_alone_s": candidate.latency_alone_s,
            "chosen": number == position,
        }
        for number, candidate in enumerate(candidates)
    ]
