"""Inputs are bound to the parameters of a network as a caller would bind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from anole.config.entries import ModelSpec
from anole.errors import ExtractError
from anole.evaluate.torch_wrappers import ByName
from anole.extract.binding import bind

VALUES = {"x": 1, "a": 10, "b": 100}


class Network(torch.nn.Module):
    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = forward  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("forward", "inputs", "expected"),
    [
        (lambda x, a: x - a, "xa", -9),
        (lambda x, a: x - a, "ax", -9),
        (lambda x, mask=None, a=0: (mask, x - a), "ax", (None, -9)),
        (lambda x, *, a: x - a, "ax", -9),
        (lambda x, a, /: x - a, "ax", -9),
        (lambda x, /, *, a: x - a, "ax", -9),
        (lambda x, **others: x - others["a"] * others["b"], "bax", -999),
        (lambda **inputs: inputs["x"] - inputs["a"], "ax", -9),
        (lambda p, q: p - q, "ax", 9),
        (lambda *values: values[0] - values[1], "ax", 9),
        (lambda *values, **named: (values[0] - values[1], named), "ax", (9, {})),
    ],
)
def test_inputs_are_bound_as_a_caller_would(forward: Callable[..., Any], inputs: str, expected: Any) -> None:
    model = ModelSpec("net", "torch:net:net", {name: (1,) for name in inputs})
    network, values = Network(forward), [VALUES[name] for name in inputs]
    assert bind(model, network).call(network, values) == expected
    assert ByName(model, network)(*values) == expected, "the evaluation has a binding of its own"


def test_partly_matching_names_are_rejected() -> None:
    model = ModelSpec("net", "torch:net:net", {"x": (1,), "y": (1,), "z": (1,)})
    with pytest.raises(ExtractError) as caught:
        bind(model, Network(lambda x, a: x - a))
    assert str(caught.value) == (
        "model net: inputs: found y, z, which forward(x, a) does not have, although it has x; name all inputs as its "
        "parameters, in any order, or none of them, in its order"
    )
