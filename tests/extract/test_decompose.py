"""What TVM's importer lacks or gets wrong is said in other words, which mean the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from anole.spec.entries import ModelSpec

from .passes.building import assert_same_as_torch

SOURCE = """
import torch
from torch.nn import functional as F

class Net(torch.nn.Module):
    def forward(self, x):
        return {expression}
"""


@pytest.mark.parametrize(
    "expression",
    [
        "F.selu(x)",
        "F.elu(x, 0.3)",
        "F.celu(x, 0.3)",
        "torch.add(x, x.flip(0), alpha=0.5)",
        "torch.sub(x, x.flip(0), alpha=2)",
        "torch.rsub(x, 2.0, alpha=3)",
        "1 - x",
        "F.group_norm(x, 3)",
        "F.group_norm(x, 3, torch.arange(6.0))",
        "F.adaptive_max_pool2d(x, 1)",
        "F.adaptive_max_pool2d(x, (4, 2))",
        "x.amax((2, -1))",
        "x.amin(1, keepdim=True)",
        "x + x.amax()",
        "torch.logsumexp(x, 1)",
        "F.interpolate(x, size=(13, 25))",
        "F.interpolate(x, size=(5, 3))",
        "F.interpolate(x, scale_factor=(2, 3))",
        "F.interpolate(x, scale_factor=1.7)",
        "F.interpolate(x, scale_factor=2, mode='bicubic')",
        "x // 2 + torch.floor_divide(x, torch.arange(1, 11))",
        "(9 * x).long() // 2 + torch.div((9 * x).long(), 4, rounding_mode='trunc') + x",
        "(9 * x).long() / 3 + (9 * x).long() / torch.arange(1, 11)",
        "((x > 0) + (x > 1)) * x",
        "x[:, :, torch.tensor([[0], [3]]), torch.tensor([1, -2, 3])]",
        "x[torch.tensor([0, 1]), :, torch.tensor([5, -1])]",
        "x[:, torch.tensor([[[[0]], [[1]]]]), torch.tensor([[1, 2], [-3, 4], [5, 6]])]",
        "x[:, (x[0, :, 0, 0] > 0).long(), (x[0, :, 0, 1] > 0).long()]",
        "F.fold(F.unfold(x, 3, padding=1, stride=2), (8, 10), 3, padding=1, stride=2)",
        "F.fold(F.unfold(x, (2, 3), dilation=2, stride=(3, 2)), (8, 10), (2, 3), dilation=2, stride=(3, 2))",
    ],
)
def test_it_computes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expression: str) -> None:
    (tmp_path / "worded.py").write_text(SOURCE.format(expression=expression))
    monkeypatch.chdir(tmp_path)
    assert_same_as_torch(ModelSpec("net", "torch:worded:Net", {"x": (2, 6, 8, 10)}))
