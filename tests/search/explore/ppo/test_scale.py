"""The units in which a critic learns."""

from __future__ import annotations

import pytest
import torch

from anole.search.explore.ppo.scale import Scale


def test_all_returns_so_far_have_mean_0_and_deviation_1():
    scale, returns = Scale(fixed=False), torch.randn(4, 1000, generator=torch.Generator().manual_seed(0)) * 0.05 + 0.7
    for update in returns:
        scale.update(update)
    normalized = scale.normalized(returns)
    assert (float(normalized.mean()), float(normalized.std())) == pytest.approx((0, 1), abs=1e-2)
    torch.testing.assert_close(scale.restored(normalized), returns)


def test_units_are_kept_before_the_first_update_and_where_they_are_fixed():
    new, fixed, returns = Scale(fixed=False), Scale(fixed=True), torch.tensor([0.2, 0.4])
    fixed.update(returns)
    for scale in (new, fixed):
        assert torch.equal(scale.normalized(returns), returns) and torch.equal(scale.restored(returns), returns)


def test_equal_returns_are_no_trouble():
    scale = Scale(fixed=False)
    scale.update(torch.full((9,), 0.3))
    assert torch.isfinite(scale.normalized(torch.tensor([0.3, 0.4]))).all()
