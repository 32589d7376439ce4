"""What a candidate may take before it counts as a failure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Wall-clock seconds after which its processes are killed.

    Attributes:
        build_s: of building; AutoTVM's ten seconds, doubled because all cores build at once.
        run_s: of loading, checking and timing.
        lease_s: so long a session with another machine's device takes candidates, before the next one is opened.
        connect_s: of opening a session.
    """

    build_s: float = 20.0
    run_s: float = 10.0
    lease_s: float = 30.0
    connect_s: float = 30.0

    @property
    def session_s(self) -> float:
        """After so many seconds a server ends a session, and whatever hangs in it."""
        return self.lease_s + self.run_s
