"""The format of a module's calls: how arguments become named tensors, and a build's outputs the module's result."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch.utils import _pytree as pytree

from anole.errors import BuildError, ExtractError

Form = Any
"""A nested structure in which `Ellipsis` stands for each tensor."""


@dataclass(frozen=True)
class CallFormat:
    """The names of the tensors among the arguments of a call, in order, with the forms of (args, kwargs) and result.

    `paths` are the tensors' places in (args, kwargs); a later call may have its keywords in another order.
    """

    names: tuple[str, ...]
    paths: tuple[str, ...]
    arguments: Form
    result: Form

    @classmethod
    def of(cls, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Self:
        """Return the format of a call of a module, with a single tensor as the result.

        A tensor is named after its parameter; a tensor within a list or a dict also has its position or key.

        Raises:
            ExtractError: the arguments do not fit, or contain no tensor.
        """
        where = f"{type(module).__name__}.forward"
        try:
            bound = inspect.signature(module.forward).bind(*args, **kwargs)
        except TypeError as error:
            raise ExtractError(f"{where}: {error}; give the arguments of an example call") from None
        by_keyword = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
        parameters = [param for param in bound.signature.parameters.values() if param.kind not in by_keyword]
        call = tuple(args), dict(kwargs)
        places = [(path, leaf) for path, leaf in pytree.tree_leaves_with_path(call) if is_tensor(leaf)]
        names: list[str] = []
        for path, _ in places:
            keys: list[Any] = [getattr(key, "idx", getattr(key, "key", key)) for key in path]
            is_keyword, first, *rest = keys
            if not is_keyword:
                parameter = parameters[min(first, len(parameters) - 1)]
                rest = [first, *rest] if parameter.kind is inspect.Parameter.VAR_POSITIONAL else rest
                first = parameter.name
            name = re.sub(r"\W", "_", "_".join(map(str, [first, *rest])))
            names.append(name if name not in names else f"{name}_{len(names)}")
        if not names:
            raise ExtractError(f"{where}: found no tensor in the example call; give its inputs")
        return cls(tuple(names), tuple(pytree.keystr(path) for path, _ in places), form_of(call), ...)

    def tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the tensors of a call, in order; raise BuildError if its arguments have another form."""
        call = tuple(args), dict(kwargs)
        if form_of(call) != self.arguments:
            constants = [leaf for leaf in pytree.tree_leaves(self.arguments) if leaf is not ...]
            fixed = f" and the constants {constants}" if constants else ""
            raise BuildError(f"the call differs from the compiled one: the tensors {', '.join(self.names)}{fixed}")
        leaves = {pytree.keystr(path): leaf for path, leaf in pytree.tree_leaves_with_path(call)}
        return [leaves[path] for path in self.paths]


class FlatModule(torch.nn.Module):
    """A module whose arguments are named tensors."""

    def __init__(self, module: torch.nn.Module, call: CallFormat) -> None:
        super().__init__()
        self.module, self._call = module, call

    def forward(self, **tensors: torch.Tensor) -> Any:
        """Call the module with the tensors in their places."""
        args, kwargs = fill(self._call.arguments, [tensors[name] for name in self._call.names])
        return self.module(*args, **kwargs)


def form_of(value: Any) -> Form:
    """Return the form of a value."""
    return pytree.tree_map(lambda leaf: ... if is_tensor(leaf) else leaf, value)


def fill(form: Form, tensors: Sequence[Any]) -> Any:
    """Return the value with a form and these tensors, in order."""
    remaining = iter(tensors)
    return pytree.tree_map(lambda leaf: next(remaining) if leaf is ... else leaf, form)


def is_tensor(value: Any) -> bool:
    """Whether a value is a torch tensor or a NumPy array."""
    return isinstance(value, (torch.Tensor, np.ndarray))
