"""Whether the servers of one run are alike: the same kernel takes about as long on all of them."""

from __future__ import annotations

import logging
import statistics
from collections import defaultdict
from collections.abc import Mapping

logger = logging.getLogger(__name__)

_TOLD_ABOVE = 1.07
"""How many times as long a kernel takes on a server that is not like the fastest one."""

_ROUNDS = 3
"""Comparisons before a difference is told: what lasts for a batch or two may be a neighbour's work."""


class Likeness:
    """Compares servers, and tells once of each that is slower.

    One comparison is enough where all are about as fast.
    """

    def __init__(self) -> None:
        self._rounds: defaultdict[frozenset[str], list[Mapping[str, float]]] = defaultdict(list)
        self._settled: set[frozenset[str]] = set()
        self._told: set[str] = set()

    def wants(self, servers: frozenset[str]) -> bool:
        """Returns whether these servers are to be compared once more."""
        return len(servers) > 1 and not any(servers <= settled for settled in self._settled)

    def add(self, latencies_s: Mapping[str, float]) -> None:
        """Adds the latencies of one kernel on several servers, by their names."""
        servers = frozenset(latencies_s)
        if not self.wants(servers):
            return
        fastest_s, rounds = min(latencies_s.values()), self._rounds[servers]
        rounds.append({server: latency_s / fastest_s for server, latency_s in latencies_s.items()})
        slower = [server for server in sorted(servers) if all(ratios[server] > _TOLD_ABOVE for ratios in rounds)]
        if not slower:
            self._settled.add(servers)
        elif len(rounds) == _ROUNDS:
            self._settled.add(servers)
            for server in slower:
                self._tell(server, rounds)

    def _tell(self, server: str, rounds: list[Mapping[str, float]]) -> None:
        if server in self._told:
            return
        self._told.add(server)
        logger.warning(
            "%s is not like %s: the same kernel takes %.2f times as long there (median of %d comparisons); "
            "servers that differ belong to different keys and targets, since one search compares their times",
            server,
            min(rounds[-1], key=lambda name: rounds[-1][name]),
            statistics.median(ratios[server] for ratios in rounds),
            len(rounds),
        )
