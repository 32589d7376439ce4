"""Networks with few, small kernels: recurrent layers, a perceptron and LeNet.

`examples/models.small.yaml` builds them. A name such as ``lstm_32_64_both`` is a bidirectional LSTM with 32 steps and
64 hidden units; ``two`` stands for two layers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

SIZES = ((32, 64), (64, 128), (128, 256), (100, 512))
"""Steps and hidden units of the recurrent networks."""


class Recurrent(nn.Module):
    """A recurrent layer of torch with as many inputs as hidden units, which returns the state after each step."""

    def __init__(self, kind: Callable[..., nn.Module], hidden: int, n_layers: int = 1, both: bool = False) -> None:
        super().__init__()
        self.cells = kind(hidden, hidden, num_layers=n_layers, bidirectional=both, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the states, shape (batch, steps, hidden units of all directions)."""
        states: torch.Tensor = self.cells(x)[0]
        return states


def perceptron() -> nn.Module:
    """Return a perceptron with 784 inputs, two hidden layers of 512, and ten classes."""
    return nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10), nn.Softmax(-1)
    )


def lenet() -> nn.Module:
    """Return LeNet-5 with ReLU and max pooling, for images of 28 x 28 pixels."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def networks() -> dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]]:
    """Return the factory and the input shape of each network, by name."""
    factories: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
        "perceptron": (perceptron, (1, 784)),
        "lenet": (lenet, (1, 1, 28, 28)),
    }
    for name, kind in (("lstm", nn.LSTM), ("gru", nn.GRU)):
        for steps, hidden in SIZES:
            for suffix, settings in (("", {}), ("_two", {"n_layers": 2}), ("_both", {"both": True})):
                make = partial(Recurrent, kind, hidden, **settings)
                factories[f"{name}_{steps}_{hidden}{suffix}"] = make, (1, steps, hidden)
    return factories


def __getattr__(name: str) -> Callable[[], nn.Module]:
    if name not in (known := networks()):
        raise AttributeError(name)
    return known[name][0]
