"""Adam against the paper's algorithm."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from anole.search.explore.ppo.adam import Adam


def test_takes_the_papers_steps():
    parameter = nn.Parameter(torch.tensor([3.0, -2.0, 0.0], dtype=torch.float64))
    adam = Adam([parameter], 0.05)
    theta, m, v = np.array([3.0, -2.0, 0.0]), np.zeros(3), np.zeros(3)
    for t in range(1, 31):
        ((parameter - t / 10) ** 4).sum().backward()
        adam.step()
        g = 4 * (theta - t / 10) ** 3
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        theta -= 0.05 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-5)
        assert parameter.tolist() == pytest.approx(theta.tolist())
    assert parameter.grad is None


def test_leaves_alone_what_has_no_gradient():
    idle = nn.Parameter(torch.ones(2))
    Adam([idle], 0.05).step()
    assert idle.tolist() == [1, 1]
