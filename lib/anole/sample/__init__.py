"""Samplers: they choose the few candidates that are measured."""

from anole.roles import Sampler
from anole.sample.adaptive import Adaptive
from anole.sample.confidence import Confidence
from anole.sample.contextual import ContextualGreedy
from anole.sample.greedy import EpsilonGreedy, First
from anole.settings import Part

SAMPLERS: dict[str, type[Part[Sampler]]] = {
    sampler.name: sampler for sampler in (EpsilonGreedy, ContextualGreedy, Adaptive, Confidence, First)
}
"""Every sampler by the name that models.yaml calls it."""
