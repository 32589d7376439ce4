"""The small networks: models.small.yaml builds all of them, with the inputs that they take."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from anole.declared.reading import load_spec
from benchmarks.networks import small as small_networks


def test_all_are_listed_with_their_inputs() -> None:
    listed = load_spec(Path(__file__).parents[2] / "models.small.yaml").models
    found = {name: (model.source, model.inputs["x"]) for name, model in listed.items()}
    networks = small_networks.networks().items()
    assert found == {name: (f"torch:benchmarks.networks.small:{name}", shape) for name, (_, shape) in networks}


@pytest.mark.parametrize(
    ("name", "shape"),
    [("perceptron", (1, 10)), ("lenet", (1, 10)), ("gru_32_64_both", (1, 32, 128)), ("lstm_32_64_two", (1, 32, 64))],
)
def test_they_take_their_inputs(name: str, shape: tuple[int, ...]) -> None:
    _, given = small_networks.networks()[name]
    assert getattr(small_networks, name)().eval()(torch.zeros(given)).shape == shape
