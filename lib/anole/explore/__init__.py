"""Explorers: they walk a space for configs that are worth measuring."""

from anole.explore.annealing import Annealing
from anole.explore.contextual import ContextualAnnealing
from anole.explore.guided import GuidedAnnealing
from anole.explore.ppo import MAPPO, PPO
from anole.explore.random import Random
from anole.roles import Explorer
from anole.settings import Part

EXPLORERS: dict[str, type[Part[Explorer]]] = {
    explorer.name: explorer for explorer in (Annealing, ContextualAnnealing, GuidedAnnealing, PPO, MAPPO, Random)
}
"""Every explorer by the name that models.yaml calls it."""
