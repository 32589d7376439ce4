"""Networks like those of users, and their outputs, in plain torch, ONNX and NumPy, without Anole.

Tests copy this file into a project, where models.yaml names its factories. As a script, it calls each network with
keyword arguments and stores inputs and outputs by name in ``oracle/<case>.npz``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

SHAPE = (2, 8)


class Weighted(nn.Module):
    """A network with a linear layer of random weights."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.linear = nn.Linear(8, 8)
        self.eval()


class Subtract(Weighted):
    def forward(self, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        return self.linear(x) - 2 * a


class Three(Weighted):
    def forward(self, b: torch.Tensor, a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return self.linear(b) - 2 * a + 3 * c * b


class Keywords(Weighted):
    def forward(self, x: torch.Tensor, mask: Any = None, *, scale: torch.Tensor, bias: Any = None) -> torch.Tensor:
        assert mask is None and bias is None
        return self.linear(x) * scale - scale


class Collected(Weighted):
    def forward(self, x: torch.Tensor, **others: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * others["scale"] - others["bias"]


class OnlyByPosition(Weighted):
    def forward(self, x: torch.Tensor, a: torch.Tensor, /) -> torch.Tensor:
        return self.linear(x) - 2 * a


class Passed(Weighted):
    """A wrapper whose arguments have no names."""

    def forward(self, *arguments: torch.Tensor, **keywords: torch.Tensor) -> torch.Tensor:
        x, a = arguments
        return self.linear(x) - 2 * a


class Nested(Weighted):
    def forward(self, x: torch.Tensor, a: torch.Tensor) -> dict[str, Any]:
        x = self.linear(x)
        return {"z": x - 2 * a, "b": (a * 3, [x + a, {"y": x * a}]), "a": x.sum(1)}


class Mixed(Weighted):
    """A network with several types, keyword-only parameters, a default in between, and nested outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(2, 8)
        with torch.no_grad():
            self.table.weight.copy_(torch.arange(16.0).reshape(2, 8) / 16)

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, bias: Any = None, *, x: torch.Tensor, at: torch.Tensor
    ) -> dict[str, Any]:
        assert bias is None
        found = self.linear(self.table(ids[:, 0])) + x
        return {"z": torch.where(mask, found, -x), "b": (ids + 3, [mask.logical_not(), {"y": at * 2}])}


class Tied(Weighted):
    def forward(self, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.relu(self.linear(x))) - a


class Passing(Weighted):
    """A network that returns an input as an output, and one output twice."""

    def forward(self, x: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.linear(x) - 2 * a
        return a, found, found, x


class Hidden(Weighted):
    """A network with masked logits, their softmax with a fully masked first row, and the logarithm of zeros."""

    def forward(self, mask: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.linear(x)
        hidden = torch.cat([torch.ones_like(mask[:1]), mask[1:]])
        logits = x.masked_fill(hidden, -torch.inf)
        return logits, logits.softmax(-1), torch.log(torch.relu(x))


class Scalars(Weighted):
    def forward(self, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * scale + shift


class Images(Weighted):
    """A network with two images and a convolution for each."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.left, self.right = (nn.Conv2d(16, 16, 3, padding=1) for _ in range(2))

    def forward(self, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.left(x)) - 0.5 * torch.relu(self.right(a))


def other_weights() -> nn.Module:
    return Subtract(seed=7)


def write_onnx(path: Path) -> None:
    """Write an ONNX file whose inputs and outputs are in a different order than its nodes use and compute them."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.random.default_rng(3).standard_normal((8, 8)).astype(np.float32)
    names = ("second", "first", "unused", "both")
    nodes = [
        helper.make_node("MatMul", ["first", "weight"], ["product"]),
        helper.make_node("Sub", ["product", "second"], ["late"]),
        helper.make_node("Mul", ["product", "both"], ["early"]),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in names]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("early", "late", "both")]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, [numpy_helper.from_array(weight, "weight")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@dataclass(frozen=True)
class Case:
    """A network and its inputs in models.yaml.

    Attributes:
        network: the factory in this file; None for the ONNX file.
        inputs: the entry of each input in models.yaml: a shape, or a shape and a type.
        arguments: the names of the network's parameters, in the order of `inputs`, if they differ.
    """

    network: Callable[[], nn.Module] | None
    inputs: Mapping[str, Any]
    arguments: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        return "onnx:graph.onnx" if self.network is None else f"torch:networks:{self.network.__name__}"


def of(*names: str, shape: tuple[int, ...] = SHAPE) -> dict[str, Any]:
    """Return inputs with the same shape."""
    return {name: list(shape) for name in names}


TYPED = {
    "x": list(SHAPE),
    "mask": {"shape": list(SHAPE), "dtype": "bool"},
    "at": {"shape": list(SHAPE), "dtype": "int32"},
    "ids": {"shape": list(SHAPE), "dtype": "int64"},
}
CASES = {
    "turned": Case(Subtract, of("a", "x")),
    "mixed": Case(Mixed, TYPED),
    "file": Case(None, of("second", "first", "unused", "both")),
    "in_order": Case(Subtract, of("x", "a")),
    "keywords": Case(Keywords, of("scale", "x")),
    **{f"three_{''.join(names)}": Case(Three, of(*names)) for names in ("abc", "acb", "bac", "bca", "cab", "cba")},
    "positions": Case(Subtract, of("second", "first"), ("x", "a")),
    "only_by_position": Case(OnlyByPosition, of("a", "x")),
    "collected": Case(Collected, of("scale", "x", "bias")),
    "passed": Case(Passed, of("x", "a")),
    "nested": Case(Nested, of("a", "x")),
    "tied": Case(Tied, of("x", "a")),
    "passing": Case(Passing, of("x", "a")),
    "hidden": Case(Hidden, {"mask": TYPED["mask"], "x": list(SHAPE)}),
    "other_weights": Case(other_weights, of("x", "a")),
    "scalars": Case(Scalars, {"x": list(SHAPE), "scale": [], "shift": {"shape": [], "dtype": "int64"}}),
    "images": Case(Images, of("x", "a", shape=(1, 16, 10, 10))),
}
"""The networks by name; the first three are in `make test`."""


def random_inputs(case: Case, seed: int = 0) -> dict[str, np.ndarray]:
    rng, found = np.random.default_rng(seed), {}
    for name, entry in case.inputs.items():
        shape, dtype = (entry["shape"], entry["dtype"]) if isinstance(entry, dict) else (entry, "float32")
        is_float = dtype == "float32"
        found[name] = np.asarray(rng.standard_normal(shape) if is_float else rng.integers(0, 2, shape), dtype)
    return found


def expected_outputs(case: Case, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a network's outputs, by their names in a build."""
    if case.network is None:
        import onnxruntime

        session = onnxruntime.InferenceSession("graph.onnx", providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))
    tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
    network = case.network()
    with torch.no_grad():
        if isinstance(network, (Passed, OnlyByPosition)):
            found = network(tensors["x"], tensors["a"])
        else:
            found = network(**dict(zip(case.arguments or tensors, tensors.values(), strict=True)))
    outputs = list(leaves(found))
    names = ["output"] if len(outputs) == 1 else [f"output_{n}" for n in range(len(outputs))]
    return dict(zip(names, outputs, strict=True))


def leaves(output: Any) -> Any:
    """Yield the arrays of a nested output in order."""
    if isinstance(output, torch.Tensor):
        yield output.numpy()
    else:
        for each in output.values() if isinstance(output, dict) else output:
            yield from leaves(each)


def main(names: list[str]) -> None:
    """Store the inputs and outputs of cases."""
    Path("oracle").mkdir(exist_ok=True)
    write_onnx(Path("graph.onnx"))
    for name in names:
        inputs = random_inputs(CASES[name])
        outputs = expected_outputs(CASES[name], inputs)
        np.savez(f"oracle/{name}.inputs.npz", allow_pickle=False, **inputs)
        np.savez(f"oracle/{name}.outputs.npz", allow_pickle=False, **outputs)


if __name__ == "__main__":
    main(sys.argv[1:])
