"""The backend ``anole`` of torch.compile, found by its entry point; unsupported graphs run in eager mode."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from anole.api import compile
from anole.errors import AnoleError


def anole(
    graph: torch.fx.GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile one graph of torch.compile; `options` are keyword arguments of `anole.compile`.

    Parameters and buffers become constants. A graph that trains, has varying sizes or cannot be compiled runs in eager
    mode, and so do a graph with state and calls after a parameter has changed; a warning says why, once.
    """
    # Dynamo marks parameters and buffers, which it passes as inputs.
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    is_state = ["_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {}) for node in placeholders]
    state = [value for value, fixed in zip(inputs, is_state, strict=True) if fixed]
    example = [value for value, fixed in zip(inputs, is_state, strict=True) if not fixed]
    if problem := _problem(graph, example, inputs):
        return _eager(graph, problem)
    try:
        module = _Fixed(graph, is_state, state)
        compiled = compile(module, *(torch.zeros_like(x) for x in example), **{"progress": False, **(options or {})})
    except AnoleError as error:
        return _eager(graph, str(error))
    versions, eager = _versions(state), _eager(graph, "its parameters have changed")

    def run(*arguments: Any) -> Any:
        current = [value for value, fixed in zip(arguments, is_state, strict=True) if fixed]
        if _versions(current) != versions:
            return eager(*arguments)
        given = (value for value, fixed in zip(arguments, is_state, strict=True) if not fixed)
        return compiled(*given)

    return run


class _Fixed(torch.nn.Module):
    """A graph whose state is constant."""

    def __init__(self, graph: torch.fx.GraphModule, is_state: Sequence[bool], state: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._graph, self._is_state = graph, is_state
        self._state = torch.nn.ParameterList([torch.nn.Parameter(x.detach(), requires_grad=False) for x in state])

    def forward(self, *inputs: torch.Tensor) -> Any:
        state, given = iter(self._state), iter(inputs)
        return self._graph(*(next(state if fixed else given) for fixed in self._is_state))


def _problem(graph: torch.fx.GraphModule, example: Sequence[Any], inputs: Sequence[Any]) -> str | None:
    """Return the reason that a graph runs in eager mode, or None."""
    if any(map(_is_training, graph.graph.nodes)):
        return "it is in training mode; call eval() on the module"
    if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        return "it computes gradients; call it within torch.no_grad()"
    if not all(isinstance(x, torch.Tensor) for x in example):
        return "its sizes vary; call torch.compile with dynamic=False"
    if not example:
        return "it has no inputs"
    copies = [value.clone() for value in inputs]
    graph(*copies)
    return "it writes to its buffers or inputs" if any(copy._version for copy in copies) else None


def _is_training(node: torch.fx.Node) -> bool:
    """Whether a node is a call with the argument ``training=True``, such as dropout's."""
    try:
        signature = inspect.signature(node.target)  # type: ignore[arg-type]
        return signature.bind(*node.args, **node.kwargs).arguments.get("training") is True
    except (TypeError, ValueError):  # not a function, or one without a signature
        return False


def _versions(state: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    return [(value.data_ptr(), value._version) for value in state]


def _eager(graph: torch.fx.GraphModule, reason: str) -> Callable[..., Any]:
    """Return a function that runs the graph in eager mode, with a warning at the first call."""
    warned: list[bool] = []

    def run(*arguments: Any) -> Any:
        if not warned:
            warnings.warn(f"anole: a graph runs in eager mode: {reason}", stacklevel=2)
            warned.append(True)
        return graph(*arguments)

    return run
