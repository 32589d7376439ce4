"""Reduction of a failing random graph to its smallest failing part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx
from onnx import numpy_helper

from .graph_generator import RandomGraph, declare, model_of, run_all

Fails = Callable[[RandomGraph], bool]


def smallest_part(graph: RandomGraph, fails: Fails) -> RandomGraph:
    """Return the first, smallest part that fails, or the graph itself if none does."""
    values = {**graph.inputs, **run_all(graph)}
    return next((part for part in _parts(graph, values) if fails(part)), graph)


def _parts(graph: RandomGraph, values: Mapping[str, Any]) -> Iterator[RandomGraph]:
    """Yield the parts that compute a node's outputs from tensors up to n steps before it, small ones first."""
    nodes = graph.model.graph.node
    makers = {name: index for index, node in enumerate(nodes) for name in node.output}
    seen: set[frozenset[int]] = set()
    for depth in range(len(nodes)):
        for last in range(len(nodes)):
            chosen = wave = frozenset([last])
            for _ in range(depth):
                wave = frozenset(makers[name] for index in wave for name in nodes[index].input if name in makers)
                chosen |= wave
            if chosen not in seen:
                seen.add(chosen)
                yield _part(graph, [nodes[index] for index in sorted(chosen)], nodes[last].output, values)


def _part(
    graph: RandomGraph, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], values: Mapping[str, Any]
) -> RandomGraph:
    made = {name for node in nodes for name in node.output}
    needed = dict.fromkeys(name for node in nodes for name in node.input if name and name not in made)
    constants = {each.name: numpy_helper.to_array(each) for each in graph.model.graph.initializer}
    inputs = {name: values[name] for name in needed if name in values}
    weights = {name: constants[name] for name in needed if name in constants}
    model = model_of(nodes, inputs, weights, outputs, graph.model.opset_import[0].version)
    del model.graph.output[:]
    model.graph.output.extend(declare({name: values[name] for name in outputs}))
    return RandomGraph(model, inputs, tuple(name for name in graph.inner if name in made))
