"""Explorers, which search a space for configs that are worth measuring."""

from anole.search.explore.annealing import Annealing
from anole.search.explore.contextual_annealing import ContextualAnnealing
from anole.search.explore.descent import Descent
from anole.search.explore.guided_annealing import GuidedAnnealing
from anole.search.explore.ppo import MAPPO, PPO
from anole.search.explore.unguided import ByMerit, Exhaustive, Random
from anole.search.roles import Explorer
from anole.search.settings import Part

EXPLORERS: dict[str, type[Part[Explorer]]] = {
    explorer.name: explorer
    for explorer in (Annealing, ByMerit, ContextualAnnealing, Descent, Exhaustive, GuidedAnnealing, PPO, MAPPO, Random)
}
"""Every explorer by its name in models.yaml."""
