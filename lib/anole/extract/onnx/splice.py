"""Puts operators in the place of one that has subgraphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray


class Splice:
    """The operators that replace one that has subgraphs.

    Args:
        node: the operator to replace, in a graph.

    Attributes:
        opset: the version of ONNX's operators.
    """

    def __init__(self, node: ir.Node) -> None:
        assert node.graph is not None
        self.opset = node.graph.opset_imports[""]
        self._node = node
        self._nodes: list[ir.Node] = []

    def add(self, operator: str, inputs: Sequence[ir.Value | None], **attributes: Any) -> ir.Value:
        """Adds an operator with one output, and returns the output."""
        node = ir.node(operator, inputs, attributes)
        self._nodes.append(self._named(node))
        return node.outputs[0]

    def constant(self, value: NDArray[Any] | ir.TensorProtocol) -> ir.Value:
        """Adds a constant."""
        return self.add("Constant", [], value=ir.tensor(value))

    def add_body(self, body: ir.Graph, inputs: Sequence[ir.Value]) -> list[ir.Value]:
        """Adds a copy of a subgraph, and returns its outputs."""
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
        """Puts the operators in the place of the one that they replace.

        Args:
            values: the new value of each of its outputs.
        """
        # A value may be an input of the network, which cannot take the name of an output.
        fresh = [self.add("Identity", [value]) for value in values]
        old = self._node
        assert old.graph is not None
        ir.convenience.replace_nodes_and_values(old.graph, old, [old], self._nodes, old.outputs, fresh)

    def _named(self, node: ir.Node) -> ir.Node:
        """Gives an operator and its outputs names of their own."""
        node.name = f"{self._node.name or self._node.outputs[0].name}/{node.name or node.op_type}_{len(self._nodes)}"
        for index, output in enumerate(node.outputs):
            if output.name != "":
                output.name = f"{node.name}:{index}"
        return node
