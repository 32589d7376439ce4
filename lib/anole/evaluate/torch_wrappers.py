"""Wrappers of torch networks: pass inputs by name, as users do, or round weights as a target stores them."""

from __future__ import annotations

from inspect import Parameter, signature
from math import prod
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from anole.config.entries import ModelSpec
from anole.targets.base import Target
from anole.targets.shared.weight_only import quantize_for_target


class ByName(torch.nn.Module):
    """A network that takes one tensor for each input of models.yaml, in that order.

    It passes them by name if the network has any such parameter or takes no positions, otherwise by position. This is
    independent of `anole.extract.binding`, so a bug there makes a build differ from its reference.
    """

    def __init__(self, model: ModelSpec, network: torch.nn.Module) -> None:
        super().__init__()
        self.network, self._inputs = network, tuple(model.inputs)
        self.train(network.training)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Run the network."""
        tensors_by_name = dict(zip(self._inputs, tensors, strict=True))
        interface = signature(self.network.forward)
        if tensors_by_name.keys().isdisjoint(interface.parameters):
            try:
                interface.bind(*tensors)
            except TypeError:
                return self.network(**tensors_by_name)
            return self.network(*tensors)
        positional_only = [
            name for name, parameter in interface.parameters.items() if parameter.kind is Parameter.POSITIONAL_ONLY
        ]
        positional = [tensors_by_name.pop(name) for name in positional_only if name in tensors_by_name]
        return self.network(*positional, **tensors_by_name)


_aten = torch.ops.aten

_OPERANDS = {
    **dict.fromkeys((_aten.mm.default, _aten.matmul.default), (0, 1, False)),
    _aten.addmm.default: (1, 2, False),
    _aten.linear.default: (0, 1, True),
}
"""Indices of a product's data and weight operands, and whether the weight's shape is (out, in)."""


class RoundedWeights(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which the matrix products of a torch network use rounded parameters."""

    def __init__(self, network: torch.nn.Module, target: Target) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._addresses = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}
        self._target = target

    def __enter__(self) -> Self:
        """Enter the context, and disable fused attention, which would hide its products in one operator."""
        self._was_enabled = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        torch.backends.mha.set_fastpath_enabled(self._was_enabled)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _OPERANDS:
            data, operand, is_transposed = _OPERANDS[func]
            weight = args[operand]
            if weight.dim() == 2 and weight.untyped_storage().data_ptr() in self._addresses:
                values = (weight.T if is_transposed else weight).numpy()
                rounded = torch.from_numpy(quantize_for_target(self._target, prod(args[data].shape[:-1]), values))
                args = (*args[:operand], rounded.T if is_transposed else rounded, *args[operand + 1 :])
        return func(*args, **(kwargs or {}))
