"""Samplers, which choose the few candidates to measure."""

from anole.search.roles import Sampler
from anole.search.sample.adaptive_sampler import AdaptiveSampler
from anole.search.sample.confidence import Confidence
from anole.search.sample.epsilon_greedy import ContextualGreedy, EpsilonGreedy
from anole.search.sample.first import First
from anole.search.settings import Part

SAMPLERS: dict[str, type[Part[Sampler]]] = {
    sampler.name: sampler for sampler in (EpsilonGreedy, ContextualGreedy, AdaptiveSampler, Confidence, First)
}
"""Every sampler by its name in models.yaml."""
