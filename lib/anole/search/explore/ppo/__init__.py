"""Reinforcement learning on surrogate scores: PPO (RELEASE's and Chameleon's explorer), and MAPPO (DCOC's)."""

from anole.search.explore.ppo.agents import MAPPO, PPO

__all__ = ["MAPPO", "PPO"]
