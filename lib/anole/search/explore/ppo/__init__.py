"""PPO on the surrogate's word, the explorer of RELEASE and Chameleon, and MAPPO, that of DCOC."""

from anole.search.explore.ppo.agents import MAPPO, PPO

__all__ = ["MAPPO", "PPO"]
