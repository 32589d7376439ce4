"""Callbacks for the events of a search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from anole.record import Confirmation, Trial


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True)
class Watch:
    """One callback for each kind of event; by default they do nothing.

    Attributes:
        iteration: receives the number of every iteration that measures configs, and the statistics of its search.
        trial: receives every new trial before the next config is measured.
        confirmation: receives every new confirmation, the fastest first.
    """

    iteration: Callable[[int, Mapping[str, float]], None] = _ignore
    trial: Callable[[Trial], None] = _ignore
    confirmation: Callable[[Confirmation], None] = _ignore

    def then(self, other: Watch) -> Watch:
        """Return a watch that calls this one first, then the other."""

        def both(first: Callable[..., None], second: Callable[..., None]) -> Callable[..., None]:
            def call(*event: Any) -> None:
                first(*event)
                second(*event)

            return call

        return Watch(*(both(getattr(self, kind.name), getattr(other, kind.name)) for kind in fields(Watch)))


NO_WATCH = Watch()
"""A watch whose callbacks do nothing."""
