"""Adam against torch's."""

from __future__ import annotations

import torch
from torch import nn

from anole.explore.ppo.adam import Adam


def test_takes_the_steps_of_torchs_adam():
    ours, theirs = (nn.Parameter(torch.tensor([3.0, -2.0, 0.0])) for _ in range(2))
    mine, reference = Adam([ours], 0.05), torch.optim.Adam([theirs], lr=0.05, eps=1e-5)
    for step in range(30):
        for parameter in (ours, theirs):
            ((parameter - step / 10) ** 4).sum().backward()
        mine.step()
        reference.step()
        reference.zero_grad()
        torch.testing.assert_close(ours, theirs)
    assert ours.grad is None
