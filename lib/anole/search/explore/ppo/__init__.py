"""Reinforcement learning on surrogate scores: PPO, the explorer of RELEASE and Chameleon, and MAPPO, DCOC's."""

from anole.search.explore.ppo.agents import MAPPO, PPO

__all__ = ["MAPPO", "PPO"]
