"""PPO on the surrogate's word, the explorer of RELEASE and Chameleon."""

from anole.explore.ppo.explorer import PPO

__all__ = ["PPO"]
