"""PPO, the explorer of RELEASE and Chameleon, and MAPPO, the explorer of DCOC; the rewards are surrogate scores."""

from anole.search.explore.ppo.agents import MAPPO, PPO

__all__ = ["MAPPO", "PPO"]
