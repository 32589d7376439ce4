"""Networks of torch whose dense layers have their weights rounded as a target stores them."""

from __future__ import annotations

from math import prod
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from anole.targets.base import Target
from anole.targets.shared.weight_only import as_stored

_aten = torch.ops.aten

_OPERANDS = {
    **dict.fromkeys((_aten.mm.default, _aten.matmul.default), (0, 1, False)),
    _aten.addmm.default: (1, 2, False),
    _aten.linear.default: (0, 1, True),
}
"""Which operands of a product are its data and its weight, and whether the weight is (out, in)."""


class RoundedWeights(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which products of a network of torch read its parameters rounded."""

    def __init__(self, network: torch.nn.Module, target: Target) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._places = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}
        self._target = target

    def __enter__(self) -> Self:
        """Begin, and let attention show its products instead of computing all of it in one operator."""
        self._was_fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        torch.backends.mha.set_fastpath_enabled(self._was_fast)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _OPERANDS:
            data, place, is_transposed = _OPERANDS[func]
            weight = args[place]
            if weight.dim() == 2 and weight.untyped_storage().data_ptr() in self._places:
                values = (weight.T if is_transposed else weight).numpy()
                rounded = torch.from_numpy(as_stored(self._target, prod(args[data].shape[:-1]), values))
                args = (*args[:place], rounded.T if is_transposed else rounded, *args[place + 1 :])
        return func(*args, **(kwargs or {}))
