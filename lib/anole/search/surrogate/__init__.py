"""Surrogates, the cost models that predict the speed of configs without measuring them."""

from anole.search.roles import Surrogate
from anole.search.settings import Part
from anole.search.surrogate.boosted_trees import BoostedTrees
from anole.search.surrogate.forest import Forest
from anole.search.surrogate.gaussian_process import GaussianProcess
from anole.search.surrogate.merit_trees import MeritTrees
from anole.search.surrogate.none import NoSurrogate

SURROGATES: dict[str, type[Part[Surrogate]]] = {
    surrogate.name: surrogate for surrogate in (BoostedTrees, MeritTrees, Forest, GaussianProcess, NoSurrogate)
}
"""Every surrogate by its name in models.yaml."""
