"""Boosted trees that correct a merit instead of learning everything: the default surrogate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from anole.search.roles import Surrogate
from anole.search.surrogate.boosted_trees import BoostedTrees, BoostedTreesSurrogate
from anole.search.surrogate.margin import MeritMargin
from anole.space.space import Space


@dataclass(frozen=True)
class MeritTrees(BoostedTrees):
    """Boosted trees that begin from the space's merit, if this is a speed.

    The merit scores configs before the first trial, so that the explorer walks on it. Then it is the margin from which
    the trees are boosted. In other spaces these are plain boosted trees. Our own method, not from a paper.
    """

    name: ClassVar[str] = "merit_trees"

    def start(self, space: Space) -> Surrogate:
        """Returns the surrogate, ready to tune one task."""
        return BoostedTreesSurrogate(self, space, MeritMargin(space) if space.merit_is_speed else None)
