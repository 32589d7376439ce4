"""The format of a module's calls: how arguments become named tensors, and a build's outputs the module's result."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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

    `paths` are the tensors' places in (args, kwargs); a later call may have its keywords in another order. `state` has
    the name and the initial value of each buffer that the module writes. In a build, the buffers are inputs after the
    call's tensors, and their new values are outputs after the result.
    """

    names: tuple[str, ...]
    paths: tuple[str, ...]
    arguments: Form
    result: Form
    state: tuple[tuple[str, torch.Tensor], ...] = ()

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
            names.append(_input_name("_".join(map(str, [first, *rest])), names))
        if not names:
            raise ExtractError(f"{where}: found no tensor in the example call; give its inputs")
        return cls(tuple(names), tuple(pytree.keystr(path) for path, _ in places), form_of(call), ...)

    def with_state(self, buffers: Mapping[str, torch.Tensor]) -> Self:
        """Return the format for a module that writes these buffers."""
        names = list(self.names)
        for name in buffers:
            names.append(_input_name(name, names))
        state = tuple((name, value.detach().clone()) for name, value in buffers.items())
        return replace(self, names=tuple(names), state=state)

    def complete(self, samples: Mapping[str, Any]) -> dict[str, Any]:
        """Return samples of a call's tensors, each with the initial state."""
        n_samples, state_names = len(np.atleast_1d(next(iter(samples.values())))), self.names[len(self.paths) :]
        initial = zip(state_names, (value.expand(n_samples, *value.shape) for _, value in self.state), strict=True)
        return {**dict(initial), **samples}

    def tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the tensors of a call, in order; raise BuildError if its arguments have another form."""
        call = tuple(args), dict(kwargs)
        if form_of(call) != self.arguments:
            constants = [leaf for leaf in pytree.tree_leaves(self.arguments) if leaf is not ...]
            fixed = f" and the constants {constants}" if constants else ""
            names = ", ".join(self.names[: len(self.paths)])
            raise BuildError(f"the call differs from the compiled one: the tensors {names}{fixed}")
        leaves = {pytree.keystr(path): leaf for path, leaf in pytree.tree_leaves_with_path(call)}
        return [leaves[path] for path in self.paths]


class FlatModule(torch.nn.Module):
    """A module whose arguments and state are named tensors; with state, it returns (result, new state)."""

    def __init__(self, module: torch.nn.Module, call: CallFormat) -> None:
        super().__init__()
        self.module, self._call = module, call

    def forward(self, **tensors: torch.Tensor) -> Any:
        """Call the module with the tensors in their places."""
        call, values = self._call, [tensors[name] for name in self._call.names]
        args, kwargs = fill(call.arguments, values)
        if not call.state:
            return self.module(*args, **kwargs)
        pairs = zip(call.state, values[len(call.paths) :], strict=True)
        state = {name: value.clone() for (name, _), value in pairs}
        result = torch.func.functional_call(self.module, state, args, kwargs)
        for name, value in call.state:
            old, new = list(value.shape), list(state[name].shape)
            if old != new:
                raise ExtractError(f"the buffer {name} changes its shape, from {old} to {new}, which a build cannot")
        return result, tuple(state.values())


def _input_name(name: str, others: Sequence[str]) -> str:
    name = re.sub(r"\W", "_", name)
    return name if name not in others else f"{name}_{len(others)}"


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
