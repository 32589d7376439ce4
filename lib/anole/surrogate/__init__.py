"""Surrogates: they predict the speed of a config without measuring it."""

from anole.roles import Surrogate
from anole.settings import Part
from anole.surrogate.blind import Blind
from anole.surrogate.boosted_trees import BoostedTrees
from anole.surrogate.forest import Forest

SURROGATES: dict[str, type[Part[Surrogate]]] = {
    surrogate.name: surrogate for surrogate in (BoostedTrees, Forest, Blind)
}
"""Every surrogate by the name that models.yaml calls it."""
