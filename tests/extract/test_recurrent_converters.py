"""torch's recurrent layers, whatever their options, compute what torch computes."""

from __future__ import annotations

import pytest

from anole.extract.graph import find_layers
from anole.extract.load import load_model

from .conftest import Write
from .passes.building import assert_same_as_torch

SOURCE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.{cells}

    def forward(self, x):
        result, states = self.cells(x)
        return torch.cat([each.flatten() for each in (result, *(states if isinstance(states, tuple) else [states]))])
"""

CELLS = "LSTM(5, 20, num_layers=2, bidirectional=True, batch_first=True)"
MORE_CELLS = (
    "GRU(5, 16)",
    "GRU(5, 33, num_layers=2, bidirectional=True, batch_first=True)",
    "RNN(5, 7, nonlinearity='relu', bias=False)",
    "RNN(5, 17, batch_first=True)",
    "GRU(5, 8, bias=False)",
    "LSTM(5, 20, proj_size=4)",
)


@pytest.mark.parametrize("cells", [CELLS, *(pytest.param(each, marks=pytest.mark.slow) for each in MORE_CELLS)])
def test_it_computes_the_same(write: Write, cells: str) -> None:
    assert_same_as_torch(write(SOURCE.format(cells=cells), 3, 4, 5))


def test_each_layer_is_one_product_of_all_inputs(write: Write) -> None:
    found = find_layers(load_model(write(SOURCE.format(cells=CELLS), 3, 4, 5)))
    assert [(layer.name, layer.workload.batch, layer.workload.in_features) for layer in found] == [
        ("cells", 12, 5),
        ("cells", 12, 40),
    ]
