"""Fold values in an exported torch program that depend on no input, such as masks and position encodings."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

_MAX_ELEMENTS = 2**24
"""Max number of elements of a folded result; larger results stay expressions."""

_CONSTANTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def fold_program(program: torch.export.ExportedProgram) -> None:
    """Replace each result that depends on no input by a constant, which torch evaluates much faster than TVM.

    Changes the program in place; it must have no side effects, as after `decompose`.
    """
    values = given_values(program)
    folded = [node for node in program.graph.nodes if node not in values and _evaluate(node, values)]
    tensors = [node for node in folded if isinstance(values[node], torch.Tensor)]
    for node in [node for node in tensors if node.users.keys() - values.keys()]:
        node.replace_all_uses_with(add_constant(program, f"folded_{node.name}", values[node]))
    for node in reversed(folded):
        if not node.users:
            program.graph.erase_node(node)


def given_values(program: torch.export.ExportedProgram) -> dict[torch.fx.Node, Any]:
    """Return the value of each placeholder that is a weight, buffer or constant."""
    values = {**dict(program.named_parameters()), **dict(program.named_buffers()), **program.constants}
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.kind in _CONSTANTS}
    nodes = program.graph.find_nodes(op="placeholder")
    return {node: values[targets[node.name]] for node in nodes if node.name in targets}


def _evaluate(node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> bool:
    """Evaluate a node and store its value, if all operands are known; return whether the node was evaluated."""
    if not _is_pure(node) or any(operand not in values for operand in node.all_input_nodes) or _is_too_large(node):
        return False
    operator: Any = node.target
    arguments, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda operand: values[operand])
    try:
        with torch.no_grad():
            values[node] = operator(*arguments, **kwargs)
    except Exception:  # Nodes that torch cannot evaluate stay in the program.
        return False
    return True


def _is_pure(node: torch.fx.Node) -> bool:
    if node.op != "call_function":
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        # Arithmetic on extents, and on Python numbers read from tensors.
        return getattr(node.target, "__module__", "") in ("_operator", "math", "torch")
    is_random = torch.Tag.nondeterministic_seeded in node.target.tags
    return not is_random and not node.target._schema.is_mutable


def _is_too_large(node: torch.fx.Node) -> bool:
    results = torch.utils._pytree.tree_leaves(node.meta.get("val"))
    shapes = [result.shape for result in results if isinstance(result, torch.Tensor)]
    return any(prod(size for size in shape if isinstance(size, int)) > _MAX_ELEMENTS for shape in shapes)


def add_constant(program: torch.export.ExportedProgram, name: str, value: torch.Tensor) -> torch.fx.Node:
    """Add a constant to a program and return its node."""
    first_node = next(iter(program.graph.nodes))
    with program.graph.inserting_before(first_node):
        placeholder: torch.fx.Node = program.graph.placeholder(name)
    mode = getattr(first_node.meta.get("val"), "fake_mode", None)
    placeholder.meta["val"] = mode.from_tensor(value, static_shapes=True) if mode else value
    program.constants[name] = value.detach().contiguous()
    spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(placeholder.name), name)
    program.graph_signature.input_specs.append(spec)
    return placeholder
