"""Removes control flow: unrolls loops whose number of turns is known, and computes both branches of an `If`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anole.extract.onnx.protos import OWN_DOMAINS
from anole.extract.onnx.validation import MAX_NODES

MAX_UNROLLED = 4096
"""The largest number of operators to which one loop is unrolled."""


def unroll_loops(model: ir.Model) -> bool:
    """Unroll loops of the main graph in place, where their turns are known; returns whether there was one."""
    return _replaced(model, {"Loop": _unroll_loop, "Scan": _unroll_scan})


def _replaced(model: ir.Model, replace: Mapping[str, Callable[[ir.Node], bool]]) -> bool:
    """Try to replace all operators of some types, and return whether one was replaced."""
    found = [node for node in model.graph if node.domain in OWN_DOMAINS and node.op_type in replace]
    return any([replace[node.op_type](node) for node in found])


def _unroll_loop(node: ir.Node) -> bool:
    body = node.attributes["body"].as_graph()
    count, condition, *states = node.inputs
    n_turns = None if count is None or count.const_value is None else int(count.const_value.numpy().item())
    goes_on = condition is None or (condition.const_value is not None and bool(condition.const_value.numpy().item()))
    n_scans = len(node.outputs) - len(states)
    if n_turns is None or not goes_on or not _never_ends(body) or not _is_allowed(node, n_turns, body, n_scans):
        return False
    result = _Splice(node)
    truth = result.constant(np.array(True))
    turns = ([result.constant(np.array(turn, np.int64)), truth] for turn in range(n_turns))
    values, scanned = _repeated(result, body, states, n_scans, ((before, []) for before in turns))
    result.replace([*values, *(_stack(result, each, 0) for each in scanned)])
    return True


def _unroll_scan(node: ir.Node) -> bool:
    # Before version 9, a scan had a batch, and lengths as its first input.
    if node.graph is None or node.graph.opset_imports.get("", 9) < 9:
        return False
    body = node.attributes["body"].as_graph()
    n_inputs = node.attributes["num_scan_inputs"].as_int()
    n_states = len(node.inputs) - n_inputs
    states, sequences = list(node.inputs[:n_states]), list(node.inputs[n_states:])
    n_scans = len(node.outputs) - n_states
    in_axes, out_axes = _numbers(node, "scan_input_axes", n_inputs), _numbers(node, "scan_output_axes", n_scans)
    backward = _numbers(node, "scan_input_directions", n_inputs)
    reversed_ = _numbers(node, "scan_output_directions", n_scans)
    first = sequences[0]
    if first is None or first.shape is None or not isinstance(first.shape[in_axes[0]], int):
        return False
    n_turns = int(first.shape[in_axes[0]])  # type: ignore[arg-type]
    if not _is_allowed(node, n_turns, body, n_scans):
        return False
    result = _Splice(node)

    def slices(turn: int) -> list[ir.Value]:
        places = [n_turns - 1 - turn if is_backward else turn for is_backward in backward]
        return [
            result.add("Gather", [each, result.constant(np.array(place, np.int64))], axis=axis)
            for each, place, axis in zip(sequences, places, in_axes, strict=True)
        ]

    turns: Iterator[_Turn] = (([], slices(turn)) for turn in range(n_turns))
    values, scanned = _repeated(result, body, states, n_scans, turns)
    ordered = [each[::-1] if is_reversed else each for each, is_reversed in zip(scanned, reversed_, strict=True)]
    stacks = [_stack(result, each, axis) for each, axis in zip(ordered, out_axes, strict=True)]
    result.replace([*values, *stacks])
    return True


_Turn = tuple[list[ir.Value], list[ir.Value]]
"""What a turn of a loop reads before and behind the states."""


def _repeated(
    result: _Splice, body: ir.Graph, states: Sequence[ir.Value | None], n_scans: int, turns: Iterable[_Turn]
) -> tuple[list[ir.Value], list[list[ir.Value]]]:
    """Add a loop's body for each turn; return the last states, and each further output of all turns."""
    values = [value for value in states if value is not None]
    scanned: list[list[ir.Value]] = [[] for _ in range(n_scans)]
    for before, behind in turns:
        # A loop's body returns first whether the loop goes on.
        found = result.add_body(body, [*before, *values, *behind])[len(body.outputs) - len(states) - n_scans :]
        values = found[: len(states)]
        for collected, value in zip(scanned, found[len(states) :], strict=True):
            collected.append(value)
    return values, scanned


def _stack(result: _Splice, values: Sequence[ir.Value], axis: int) -> ir.Value:
    """Return values one after the other along a new axis."""
    if result.opset < 13:
        return result.add("Concat", [result.add("Unsqueeze", [value], axes=[axis]) for value in values], axis=axis)
    axes = result.constant(np.array([axis], np.int64))
    return result.add("Concat", [result.add("Unsqueeze", [value, axes]) for value in values], axis=axis)


def _never_ends(body: ir.Graph) -> bool:
    """Whether a loop's body always asks for the next turn."""
    condition = body.outputs[0]
    while (producer := condition.producer()) is not None and producer.op_type == "Identity":
        condition = producer.inputs[0]  # type: ignore[assignment]
    if condition is body.inputs[1]:
        return True
    value = ir.convenience.get_const_tensor(condition)
    return value is not None and bool(value.numpy().item())


def _is_allowed(node: ir.Node, n_turns: int, body: ir.Graph, n_scans: int) -> bool:
    """Whether an unrolled loop is small enough; outputs of no turn would have no shape."""
    size = n_turns * max(sum(1 for _ in body.all_nodes()), 1)
    # Loops within loops would multiply.
    n_others = len(node.graph) if node.graph is not None else 0
    return size <= MAX_UNROLLED and n_others + size <= MAX_NODES and n_turns >= (1 if n_scans else 0)


def _numbers(node: ir.Node, name: str, n: int) -> list[int]:
    return list(node.attributes[name].as_ints()) if name in node.attributes else [0] * n


def choose_branches(model: ir.Model) -> bool:
    """Compute both branches of each `If` of the main graph, where both have values of the same fixed shape.

    Returns:
        Whether there was one.
    """
    return _replaced(model, {"If": _choose})


def _choose(node: ir.Node) -> bool:
    condition = node.inputs[0]
    branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    pairs = list(zip(*(branch.outputs for branch in branches), strict=True))
    if condition is None or condition.shape is None or not all(_is_alike(*pair) for pair in pairs):
        return False
    if condition.shape.rank() and not all(pair[0].shape.rank() for pair in pairs):
        return False
    result = _Splice(node)
    pairs = list(zip(*(result.add_body(branch, []) for branch in branches), strict=True))
    result.replace([result.add("Where", [condition, *pair]) for pair in pairs])
    return True


def _is_alike(first: ir.Value, second: ir.Value) -> bool:
    """Whether two values are tensors of the same fixed shape and type."""
    if first.shape is None or second.shape is None or not isinstance(first.type, ir.TensorType):
        return False
    return first.shape.is_static() and first.shape == second.shape and first.dtype == second.dtype


class _Splice:
    """The operators that replace one that has subgraphs."""

    def __init__(self, node: ir.Node) -> None:
        assert node.graph is not None
        self.opset = node.graph.opset_imports[""]
        self._node = node
        self._nodes: list[ir.Node] = []

    def add(self, operator: str, inputs: Sequence[ir.Value | None], **attributes: Any) -> ir.Value:
        """Add an operator with one output, and return the output."""
        node = ir.node(operator, inputs, attributes)
        self._nodes.append(self._named(node))
        return node.outputs[0]

    def constant(self, value: NDArray[Any] | ir.TensorProtocol) -> ir.Value:
        """Add a constant."""
        return self.add("Constant", [], value=ir.tensor(value))

    def add_body(self, body: ir.Graph, inputs: Sequence[ir.Value]) -> list[ir.Value]:
        """Add a copy of a subgraph, and return its outputs."""
        copy = body.clone(allow_outer_scope_values=True)
        given = dict(zip(copy.inputs, inputs, strict=True))
        for value in copy.initializers.values():
            assert value.const_value is not None
            given[value] = self.constant(value.const_value)
        results = [given.get(output, output) for output in copy.outputs]
        copy.outputs.clear()
        ir.convenience.replace_all_uses_with(list(given), list(given.values()))
        nodes = list(copy)
        copy.remove(nodes)
        self._nodes += map(self._named, nodes)
        return results

    def replace(self, values: Sequence[ir.Value]) -> None:
        """Put the operators in the place of the one that they replace, with a new value for each of its outputs."""
        # A value may be an input of the network, which cannot take the name of an output.
        fresh = [self.add("Identity", [value]) for value in values]
        old = self._node
        assert old.graph is not None
        ir.convenience.replace_nodes_and_values(old.graph, old, [old], self._nodes, old.outputs, fresh)

    def _named(self, node: ir.Node) -> ir.Node:
        """Give an operator and its outputs names of their own."""
        node.name = f"{self._node.name or self._node.outputs[0].name}/{node.name or node.op_type}_{len(self._nodes)}"
        for index, output in enumerate(node.outputs):
            if output.name != "":
                output.name = f"{node.name}:{index}"
        return node
