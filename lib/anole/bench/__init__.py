"""A test bench for search methods: complete, measured spaces with known optima."""

from anole.bench.ask_tell import Objective, Tuner
from anole.bench.problem import Problem
from anole.bench.tables import load, names

__all__ = ["Objective", "Problem", "Tuner", "load", "names"]
