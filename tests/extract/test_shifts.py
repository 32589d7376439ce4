"""Torch's shifts by any number of bits; ONNX's shifts are tested in onnx/test_operators.py."""

from __future__ import annotations

from .conftest import Write
from .passes.building import assert_same_as_torch

SOURCE = """
class Net(nn.Module):
    def forward(self, x):
        by = torch.tensor([-1, 0, 3, 31, 32, 40], dtype=torch.int32)
        integers = (100 * x).to(torch.int32)
        return torch.cat([integers >> by, integers << by, integers >> 2, integers << 33]).float()
"""


def test_a_shift_by_all_bits_or_more_keeps_the_sign(write: Write) -> None:
    assert_same_as_torch(write(SOURCE, 4, 6))
