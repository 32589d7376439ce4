"""A wrapper that passes a torch network its inputs by name, as users do."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

import torch

from anole.config.entries import ModelSpec


class ByName(torch.nn.Module):
    """A network that takes one tensor for each input of models.yaml, in that order.

    It passes them by name if the network has such parameters, otherwise by position. This is independent of
    `anole.extract.binding`, so a bug there makes a build differ from its reference.
    """

    def __init__(self, model: ModelSpec, network: torch.nn.Module) -> None:
        super().__init__()
        self.network, self._inputs = network, tuple(model.inputs)
        self.train(network.training)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Run the network."""
        named = dict(zip(self._inputs, tensors, strict=True))
        expected = signature(self.network.forward)
        if named.keys().isdisjoint(expected.parameters):
            try:
                expected.bind(*tensors)
            except TypeError:
                return self.network(**named)
            return self.network(*tensors)
        positional_only = [
            name for name, parameter in expected.parameters.items() if parameter.kind is Parameter.POSITIONAL_ONLY
        ]
        positional = [named.pop(name) for name in positional_only if name in named]
        return self.network(*positional, **named)
