"""Nearest-neighbor resizing and recurrent layers match torch with all options."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.extract.converters import nearest_indices
from anole.extract.graph import find_layers
from anole.extract.load import load_model

from .conftest import Write
from .passes.building import assert_same_as_torch

along_a_side = st.one_of(
    st.tuples(st.integers(1, 500), st.none()),
    st.tuples(st.none(), st.floats(0.3, 5.0).map(lambda factor: round(factor, 2))),
)


@settings(deadline=None)
@given(st.integers(4, 200), along_a_side)
def test_nearest_indices_match_torch(inputs: int, request: tuple[int | None, float | None]) -> None:
    size, factor = request
    data = torch.arange(float(inputs)).view(1, 1, inputs, 1)
    expected = torch.nn.functional.interpolate(
        data, size=size and (size, 1), scale_factor=factor and (factor, 1.0)
    ).flatten()
    found = nearest_indices(inputs, len(expected), factor)
    np.testing.assert_array_equal(found, expected.long().numpy())


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
def test_recurrent_layers_match_torch(write: Write, cells: str) -> None:
    assert_same_as_torch(write(SOURCE.format(cells=cells), 3, 4, 5))


def test_each_layer_is_one_product_of_all_inputs(write: Write) -> None:
    found = find_layers(load_model(write(SOURCE.format(cells=CELLS), 3, 4, 5)))
    assert [(layer.name, layer.workload.batch, layer.workload.in_features) for layer in found] == [
        ("cells", 12, 5),
        ("cells", 12, 40),
    ]
