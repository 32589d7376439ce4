"""The Adam optimizer; torch's own optimizers import a compiler, which costs every tuning process seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn


class Adam:
    """Kingma and Ba, "Adam: A Method for Stochastic Optimization" (ICLR 2015), algorithm 1.

    Args:
        parameters: the parameters to train.
        learning_rate: the paper's alpha.
        beta1, beta2: decay rates of the gradient's moments.
        epsilon: keeps a step finite; the value of the public PPO codes.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        learning_rate: float,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-5,
    ) -> None:
        self.learning_rate, self.beta1, self.beta2, self.epsilon = learning_rate, beta1, beta2, epsilon
        self._n_steps = 0
        self._moments = [(p, torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]

    @torch.no_grad()
    def step(self) -> None:
        """Takes one step along the gradients and clears them."""
        self._n_steps += 1
        first_bias, second_bias = 1 - self.beta1**self._n_steps, 1 - self.beta2**self._n_steps
        for parameter, first, second in self._moments:
            if parameter.grad is None:
                continue
            first.lerp_(parameter.grad, 1 - self.beta1)
            second.mul_(self.beta2).addcmul_(parameter.grad, parameter.grad, value=1 - self.beta2)
            deviation = second.sqrt().div_(math.sqrt(second_bias)).add_(self.epsilon)
            parameter.addcdiv_(first, deviation, value=-self.learning_rate / first_bias)
            parameter.grad = None
