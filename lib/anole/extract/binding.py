"""Bind a model's inputs to the arguments of its torch network: by name where names match, otherwise by position."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anole.errors import ExtractError

if TYPE_CHECKING:
    import torch

    from anole.config.entries import ModelSpec

_VARIADIC_KINDS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class Binding:
    """The split of a model's inputs into positional and keyword arguments of its network.

    Attributes:
        inputs: the names of all inputs, in the order of models.yaml.
        positional: the names of the inputs that are passed by position, in the network's order.
        keyword: the names of the inputs that are passed by keyword.
    """

    inputs: tuple[str, ...]
    positional: tuple[str, ...]
    keyword: tuple[str, ...]

    def arguments(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments and the keyword arguments of a call, given one value for each input."""
        by_name = dict(zip(self.inputs, values, strict=True))
        return tuple(by_name[name] for name in self.positional), {name: by_name[name] for name in self.keyword}

    def call(self, network: torch.nn.Module, values: Sequence[Any]) -> Any:
        """Run a network on one value for each input."""
        args, kwargs = self.arguments(values)
        return network(*args, **kwargs)


def bind(model: ModelSpec, network: torch.nn.Module) -> Binding:
    """Match a model's inputs to the parameters of its network.

    Raises:
        ExtractError: only some of the inputs are parameters of ``forward``.
    """
    inputs = tuple(model.inputs)
    try:
        signature = inspect.signature(network.forward)
    except ValueError:  # Compiled functions may have no signature.
        return Binding(inputs, inputs, ())
    parameters = {name: param for name, param in signature.parameters.items() if param.kind not in _VARIADIC_KINDS}
    collector = next((param.name for param in signature.parameters.values() if param.kind is param.VAR_KEYWORD), None)
    unknown = [name for name in inputs if name not in parameters]
    if len(unknown) == len(inputs) and (collector is None or _accepts_positional(signature, len(inputs))):
        return Binding(inputs, inputs, ())
    if unknown and collector is None:
        raise ExtractError(
            f"model {model.name}: inputs: found {', '.join(unknown)}, which forward({', '.join(parameters)}) does not "
            f"have, although it has {', '.join(name for name in inputs if name in parameters)}; name all inputs as its "
            "parameters, in any order, or none of them, in its order"
        )
    arguments: dict[str, Any] = {name: name for name in parameters if name in inputs}
    if collector is not None:
        arguments[collector] = {name: name for name in unknown}
    bound = inspect.BoundArguments(signature, arguments)  # type: ignore[arg-type]
    return Binding(inputs, tuple(bound.args), tuple(bound.kwargs))


def _accepts_positional(signature: inspect.Signature, count: int) -> bool:
    """Whether a call with `count` positional arguments is valid."""
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True
