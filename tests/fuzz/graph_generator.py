"""Generator of random ONNX graphs with inputs, by seed; ONNX Runtime runs each node alone before it is added."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from anole.evaluate.engines import onnxruntime_session

from .graph_operators import ALL, Choice, Value, operators

MAX_NODES = 30
_MAX_ELEMENTS = 4096
_EXTENTS = (1, 2, 3, 4, 5, 7, 8, 12)
_HUGE = 1e9


@dataclass(frozen=True)
class RandomGraph:
    """A model and one set of inputs.

    Attributes:
        inner: the names of all computed tensors.
    """

    model: onnx.ModelProto
    inputs: dict[str, Any]
    inner: tuple[str, ...]


def random_graph(seed: int) -> RandomGraph:
    """Generate the graph of a seed, with 1 to `MAX_NODES` nodes.

    ONNX Runtime rejects some nodes in a graph that it runs alone, such as pools larger than their data.
    """
    for attempt in itertools.count():
        graph = _Builder(np.random.default_rng([seed, attempt])).build()
        with suppress(Exception):
            run_all(graph)
            return graph
    raise AssertionError


class _Builder:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.opset = int(rng.choice([18, 19, 20, 21]))
        self._inputs: list[Value] = []
        self._computed: list[Value] = []
        self._constants: dict[str, Any] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._used: set[str] = set()
        self._base = tuple(int(each) for each in rng.choice(_EXTENTS, rng.integers(1, 5)))

    def build(self) -> RandomGraph:
        for _ in range(self.rng.integers(1, 5)):
            self._add_input()
        families: dict[str, list[Any]] = {}
        for family, make in operators():
            families.setdefault(family, []).append(make)
        n_nodes = int(self.rng.integers(3, MAX_NODES + 1))
        for _ in range(12 * n_nodes):
            if len(self._nodes) >= n_nodes:
                break
            family = families[str(self.rng.choice(list(families)))]
            choice = family[int(self.rng.integers(len(family)))](self)
            if choice is not None:
                self._add(choice)
        return self._graph()

    def value(self, *dtypes: str, rank: int | tuple[int, ...] | None = None) -> Value | None:
        """Choose a tensor with one of the dtypes and ranks, preferably unused; return None if there is none."""
        ranks = range(5) if rank is None else (rank,) if isinstance(rank, int) else rank
        typed = [each for each in (*self._inputs, *self._computed) if str(each.array.dtype) in dtypes]
        found = [each for each in typed if each.rank in ranks]
        if not found:
            return None
        return self._any(found)

    def like(self, other: Value) -> Value:
        """Choose a tensor or constant of the same dtype that broadcasts with another one."""
        dtype = str(other.array.dtype)
        fitting = [
            each
            for each in (*self._inputs, *self._computed)
            if str(each.array.dtype) == dtype and each is not other and _broadcasts(each.shape, other.shape)
        ]
        if fitting and self.rng.random() < 0.75:
            return self._any(fitting)
        shape = other.shape[int(self.rng.integers(0, other.rank + 1)) :]
        shape = tuple(extent if self.rng.random() < 0.7 else 1 for extent in shape)
        return self.constant(_random(self.rng, shape, dtype), dtype)

    def constant(self, array: Any, dtype: str | None = None) -> Value:
        """Create a constant; only constants that a node uses are added to the model."""
        found = np.asarray(array, dtype)
        name = f"c{len(self._constants)}"
        self._constants[name] = found
        return Value(name, found)

    def _any(self, values: list[Value]) -> Value:
        unused = [each for each in values if each.name not in self._used]
        chosen = unused if unused and self.rng.random() < 0.8 else values
        return chosen[int(self.rng.integers(len(chosen)))]

    def _add_input(self) -> None:
        dtype = str(self.rng.choice(ALL, p=[0.7, 0.1, 0.1, 0.1])) if self._inputs else "float32"
        shape = self._base
        if self._inputs and self.rng.random() < 0.4:
            shape = tuple(int(each) for each in self.rng.choice(_EXTENTS, self.rng.integers(0, 5)))
        self._inputs.append(Value(f"x{len(self._inputs)}", _random(self.rng, shape, dtype)))

    def _add(self, choice: Choice) -> None:
        number = len(self._nodes)
        outputs = [f"v{number}_{index}" for index in range(choice.n_outputs)]
        names = ["" if each is None else each.name for each in choice.operands]
        while names and not names[-1]:
            names.pop()
        node = helper.make_node(choice.operator, names, outputs, name=f"n{number}", **choice.attributes)
        given = {each.name: each.array for each in choice.operands if each is not None}
        constants = {name: array for name, array in given.items() if name in self._constants}
        fed = {name: array for name, array in given.items() if name not in constants}
        try:
            found = run(model_of([node], fed, constants, outputs, self.opset), fed)
        except Exception:
            # ONNX Runtime has no such kernel, or ONNX does not allow the choice.
            return
        ranks = {np.ndim(each) for each in found}
        if max(ranks) > 4 or any(each.size > _MAX_ELEMENTS or not each.size for each in found):
            return
        if not all(map(_is_tame, found)) and self.rng.random() < 0.95:
            return
        self._nodes.append(node)
        self._used.update(node.input)
        self._computed += [Value(name, array) for name, array in zip(outputs, found, strict=True)]

    def _graph(self) -> RandomGraph:
        inputs = {each.name: each.array for each in self._inputs if each.name in self._used}
        leaves = [each.name for each in self._computed if each.name not in self._used]
        inner = [each.name for each in self._computed if each.name in self._used]
        more = self.rng.permutation(inner)[: self.rng.integers(0, 3)].tolist()
        outputs = {each.name: each.array for each in self._computed if each.name in {*leaves, *more}}
        constants = {name: self._constants[name] for name in self._used if name in self._constants}
        model = model_of(self._nodes, inputs, constants, outputs, self.opset)
        del model.graph.output[:]
        model.graph.output.extend(declare(outputs))
        return RandomGraph(model, inputs, tuple(each.name for each in self._computed))


def model_of(nodes: Any, inputs: Any, constants: Any, outputs: Any, opset: int) -> onnx.ModelProto:
    """Build a model; ONNX Runtime infers the types of its outputs."""
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    weights = [numpy_helper.from_array(array, name) for name, array in sorted(constants.items())]
    graph = helper.make_graph(nodes, "random", declare(inputs), results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def declare(arrays: Any) -> list[onnx.ValueInfoProto]:
    """Declare inputs or outputs."""
    return [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
    ]


def run(model: onnx.ModelProto, inputs: Any) -> list[Any]:
    """Run a model with ONNX Runtime node by node, without optimizations."""
    session = onnxruntime_session(model.SerializeToString(), 1, joins=False)
    return [np.asarray(each) for each in session.run(None, dict(inputs))]


def run_all(graph: RandomGraph) -> dict[str, Any]:
    """Run a graph, and return all computed tensors by name."""
    with_all_outputs = onnx.ModelProto()
    with_all_outputs.CopyFrom(graph.model)
    del with_all_outputs.graph.output[:]
    with_all_outputs.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in graph.inner)
    return dict(zip(graph.inner, run(with_all_outputs, graph.inputs), strict=True))


def _is_tame(array: Any) -> bool:
    return array.dtype == bool or bool(np.all(np.isfinite(array)) and np.all(np.abs(array.astype(float)) < _HUGE))


def _broadcasts(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    try:
        return len(np.broadcast_shapes(one, other)) <= 4
    except ValueError:
        return False


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Return random values; some floats are multiples of 0.5, to test rounding and ties."""
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype != "float32":
        return rng.integers(-9, 10, shape).astype(dtype)
    kind = rng.random()
    if kind < 0.15:
        return (rng.integers(-8, 9, shape) / 2).astype(dtype)
    return (rng.standard_normal(shape) * rng.choice([0.1, 1.0, 1.0, 4.0])).astype(dtype)
