"""Torch's shifts by any number of bits; those of ONNX are in onnx/test_operators.py."""

from __future__ import annotations

from .conftest import Write
from .passes.building import assert_same_as_torch

SOURCE = """
class Net(nn.Module):
    def forward(self, x):
        by = torch.tensor([-1, 0, 3, 31, 32, 40], dtype=torch.int32)
        whole = (100 * x).to(torch.int32)
        return torch.cat([whole >> by, whole << by, whole >> 2, whole << 33]).float()
"""


def test_a_shift_by_all_bits_or_more_leaves_the_sign(write: Write) -> None:
    assert_same_as_torch(write(SOURCE, 4, 6))
