"""Who is told what a search does, while it does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from anole.record import Confirmation, Trial


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True)
class Watch:
    """What is called when something happens; by default nothing is.

    Attributes:
        iteration: is given the number of every iteration that measures something, with the figures of its search.
        trial: is given every new trial, before the next config is measured.
        confirmation: is given every new confirmation, the fastest first.
    """

    iteration: Callable[[int, Mapping[str, float]], None] = _ignore
    trial: Callable[[Trial], None] = _ignore
    confirmation: Callable[[Confirmation], None] = _ignore

    def then(self, other: Watch) -> Watch:
        """Returns a watch that tells this one first, and then the other."""

        def iteration(number: int, log: Mapping[str, float]) -> None:
            self.iteration(number, log)
            other.iteration(number, log)

        def trial(trial: Trial) -> None:
            self.trial(trial)
            other.trial(trial)

        def confirmation(confirmation: Confirmation) -> None:
            self.confirmation(confirmation)
            other.confirmation(confirmation)

        return Watch(iteration, trial, confirmation)


NOBODY = Watch()
"""A watch that tells nobody anything."""
