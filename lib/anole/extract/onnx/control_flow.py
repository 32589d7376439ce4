"""Control-flow removal: unroll `Loop` and `Scan` with a known trip count, and turn `If` into a selection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anole.extract.onnx.protos import ONNX_DOMAINS
from anole.extract.onnx.validation import MAX_NODES

MAX_UNROLLED_OPERATORS = 4096
"""Max number of operators of an unrolled loop."""


def unroll_loops(model: ir.Model) -> bool:
    """Unroll the main graph's loops with a known trip count, in place; return whether there was such a loop."""
    return _replace(model, {"Loop": _unroll_loop, "Scan": _unroll_scan})


def _replace(model: ir.Model, replace: Mapping[str, Callable[[ir.Node], bool]]) -> bool:
    """Try to replace all operators of the given types; return whether any was replaced."""
    nodes = [node for node in model.graph if node.domain in ONNX_DOMAINS and node.op_type in replace]
    return any([replace[node.op_type](node) for node in nodes])


def _unroll_loop(node: ir.Node) -> bool:
    body = node.attributes["body"].as_graph()
    count, condition, *states = node.inputs
    n_trips = None if count is None or count.const_value is None else int(count.const_value.numpy().item())
    is_entered = condition is None or (condition.const_value is not None and bool(condition.const_value.numpy().item()))
    n_scans = len(node.outputs) - len(states)
    if n_trips is None or not is_entered or not _is_endless(body) or not _can_unroll(node, n_trips, body, n_scans):
        return False
    result = _Splice(node)
    true = result.constant(np.array(True))
    trips = ([result.constant(np.array(trip, np.int64)), true] for trip in range(n_trips))
    values, scan_outputs = _repeat_body(result, body, states, n_scans, ((leading, []) for leading in trips))
    result.replace([*values, *(_stack(result, values_, 0) for values_ in scan_outputs)])
    return True


def _unroll_scan(node: ir.Node) -> bool:
    # Before opset 9, Scan had a batch axis, and sequence lengths as its first input.
    if node.graph is None or node.graph.opset_imports.get("", 9) < 9:
        return False
    body = node.attributes["body"].as_graph()
    n_inputs = node.attributes["num_scan_inputs"].as_int()
    n_states = len(node.inputs) - n_inputs
    states, sequences = list(node.inputs[:n_states]), list(node.inputs[n_states:])
    n_scans = len(node.outputs) - n_states
    in_axes, out_axes = _ints(node, "scan_input_axes", n_inputs), _ints(node, "scan_output_axes", n_scans)
    backward = _ints(node, "scan_input_directions", n_inputs)
    reversed_ = _ints(node, "scan_output_directions", n_scans)
    sequence = sequences[0]
    if sequence is None or sequence.shape is None or not isinstance(sequence.shape[in_axes[0]], int):
        return False
    n_trips = int(sequence.shape[in_axes[0]])  # type: ignore[arg-type]
    if not _can_unroll(node, n_trips, body, n_scans):
        return False
    result = _Splice(node)

    def slices(trip: int) -> list[ir.Value]:
        indices = [n_trips - 1 - trip if is_backward else trip for is_backward in backward]
        return [
            result.add("Gather", [sequence_, result.constant(np.array(index, np.int64))], axis=axis)
            for sequence_, index, axis in zip(sequences, indices, in_axes, strict=True)
        ]

    trips: Iterator[_Trip] = (([], slices(trip)) for trip in range(n_trips))
    values, scan_outputs = _repeat_body(result, body, states, n_scans, trips)
    series = [out[::-1] if is_reversed else out for out, is_reversed in zip(scan_outputs, reversed_, strict=True)]
    stacks = [_stack(result, values_, axis) for values_, axis in zip(series, out_axes, strict=True)]
    result.replace([*values, *stacks])
    return True


_Trip = tuple[list[ir.Value], list[ir.Value]]
"""The inputs of a loop's body before and after the states."""


def _repeat_body(
    result: _Splice, body: ir.Graph, states: Sequence[ir.Value | None], n_scans: int, trips: Iterable[_Trip]
) -> tuple[list[ir.Value], list[list[ir.Value]]]:
    """Add a copy of the body for each iteration; return the final states and the values of each scan output."""
    values = [value for value in states if value is not None]
    scan_outputs: list[list[ir.Value]] = [[] for _ in range(n_scans)]
    for leading, trailing in trips:
        # The first output of a Loop's body is the condition.
        results = result.add_body(body, [*leading, *values, *trailing])[len(body.outputs) - len(states) - n_scans :]
        values = results[: len(states)]
        for collected, value in zip(scan_outputs, results[len(states) :], strict=True):
            collected.append(value)
    return values, scan_outputs


def _stack(result: _Splice, values: Sequence[ir.Value], axis: int) -> ir.Value:
    """Stack values along a new axis."""
    if result.opset < 13:
        return result.add("Concat", [result.add("Unsqueeze", [value], axes=[axis]) for value in values], axis=axis)
    axes = result.constant(np.array([axis], np.int64))
    return result.add("Concat", [result.add("Unsqueeze", [value, axes]) for value in values], axis=axis)


def _is_endless(body: ir.Graph) -> bool:
    """Whether the condition that a loop's body computes is always true."""
    condition = body.outputs[0]
    while (producer := condition.producer()) is not None and producer.op_type == "Identity":
        condition = producer.inputs[0]  # type: ignore[assignment]
    if condition is body.inputs[1]:
        return True
    value = ir.convenience.get_const_tensor(condition)
    return value is not None and bool(value.numpy().item())


def _can_unroll(node: ir.Node, n_trips: int, body: ir.Graph, n_scans: int) -> bool:
    """Whether a loop may be unrolled: it is small enough, and if it has scan outputs, it has at least one iteration."""
    size = n_trips * max(sum(1 for _ in body.all_nodes()), 1)
    # Unrolling nested loops multiplies their sizes.
    n_other_nodes = len(node.graph) if node.graph is not None else 0
    return size <= MAX_UNROLLED_OPERATORS and n_other_nodes + size <= MAX_NODES and n_trips >= (1 if n_scans else 0)


def _ints(node: ir.Node, name: str, n: int) -> list[int]:
    return list(node.attributes[name].as_ints()) if name in node.attributes else [0] * n


def replace_ifs(model: ir.Model) -> bool:
    """Replace each `If` of the main graph by both branches and `Where`, if their outputs have equal fixed shapes.

    Returns:
        Whether any was replaced.
    """
    return _replace(model, {"If": _select_branch})


def _select_branch(node: ir.Node) -> bool:
    condition = node.inputs[0]
    branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    pairs = list(zip(*(branch.outputs for branch in branches), strict=True))
    if condition is None or condition.shape is None or not all(_have_same_type(*pair) for pair in pairs):
        return False
    if condition.shape.rank() and not all(pair[0].shape.rank() for pair in pairs):
        return False
    result = _Splice(node)
    pairs = list(zip(*(result.add_body(branch, []) for branch in branches), strict=True))
    result.replace([result.add("Where", [condition, *pair]) for pair in pairs])
    return True


def _have_same_type(value_a: ir.Value, value_b: ir.Value) -> bool:
    """Whether two values are tensors of the same dtype and fixed shape."""
    if value_a.shape is None or value_b.shape is None or not isinstance(value_a.type, ir.TensorType):
        return False
    return value_a.shape.is_static() and value_a.shape == value_b.shape and value_a.dtype == value_b.dtype


class _Splice:
    """A builder of the operators that replace an operator with subgraphs."""

    def __init__(self, node: ir.Node) -> None:
        assert node.graph is not None
        self.opset = node.graph.opset_imports[""]
        self._node = node
        self._nodes: list[ir.Node] = []

    def add(self, operator: str, inputs: Sequence[ir.Value | None], **attributes: Any) -> ir.Value:
        """Add an operator with one output, and return that output."""
        node = ir.node(operator, inputs, attributes)
        self._nodes.append(self._with_unique_names(node))
        return node.outputs[0]

    def constant(self, value: NDArray[Any] | ir.TensorProtocol) -> ir.Value:
        """Add a constant."""
        return self.add("Constant", [], value=ir.tensor(value))

    def add_body(self, body: ir.Graph, inputs: Sequence[ir.Value]) -> list[ir.Value]:
        """Add a copy of a subgraph, and return its outputs."""
        copy = body.clone(allow_outer_scope_values=True)
        replacements = dict(zip(copy.inputs, inputs, strict=True))
        for value in copy.initializers.values():
            assert value.const_value is not None
            replacements[value] = self.constant(value.const_value)
        results = [replacements.get(output, output) for output in copy.outputs]
        copy.outputs.clear()
        ir.convenience.replace_all_uses_with(list(replacements), list(replacements.values()))
        nodes = list(copy)
        copy.remove(nodes)
        self._nodes += map(self._with_unique_names, nodes)
        return results

    def replace(self, values: Sequence[ir.Value]) -> None:
        """Replace the original operator, with one value for each of its outputs."""
        # A value may be an input of the network, which cannot take an output's name.
        results = [self.add("Identity", [value]) for value in values]
        old = self._node
        assert old.graph is not None
        ir.convenience.replace_nodes_and_values(old.graph, old, [old], self._nodes, old.outputs, results)

    def _with_unique_names(self, node: ir.Node) -> ir.Node:
        """Give an operator and its outputs unique names."""
        node.name = f"{self._node.name or self._node.outputs[0].name}/{node.name or node.op_type}_{len(self._nodes)}"
        for index, output in enumerate(node.outputs):
            if output.name != "":
                output.name = f"{node.name}:{index}"
        return node
