"""Decompose an exported torch program into operators that TVM can import, by torch's decompositions or Anole's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table

from anole.extract.complex_pairs import has_complex, rewrite_complex
from anole.extract.converters import known_operators
from anole.extract.decompositions.arithmetic import ARITHMETIC
from anole.extract.decompositions.attention import ATTENTION
from anole.extract.decompositions.lookups import LOOKUPS
from anole.extract.decompositions.products import PRODUCTS
from anole.extract.decompositions.promotion import PROMOTION
from anole.extract.decompositions.reductions import REDUCTIONS
from anole.extract.decompositions.scalars import SCALARS
from anole.extract.decompositions.windows import WINDOWS
from anole.extract.decompositions.writes import WRITES
from anole.extract.fold_program import fold_program


def first_applicable(decompositions: list[Callable[..., Any]]) -> Callable[..., Any]:
    """Return a function that tries several decompositions of an operator in order."""

    def compute(*args: Any, **kwargs: Any) -> Any:
        results = (decomposition(*args, **kwargs) for decomposition in decompositions)
        return next((result for result in results if result is not NotImplemented), NotImplemented)

    return compute


def _merge_tables(*tables: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    operators = dict.fromkeys(operator for table in tables for operator in table)
    return {op: first_applicable([table[op] for table in tables if op in table]) for op in operators}


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = _merge_tables(
    SCALARS, PROMOTION, ARITHMETIC, ATTENTION, LOOKUPS, PRODUCTS, REDUCTIONS, WINDOWS, WRITES
)
"""The decomposition of each operator; it returns NotImplemented to leave a call as it is."""


_aten = torch.ops.aten
_KEPT_OPS = (_aten.linear.default, _aten.matmul.default, _aten.max_pool2d.default, _aten.max_pool3d.default)
"""Operators to keep: torch's decompositions repeat weights for each row of a batch, and return indices from pools."""


def decompose(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program in torch's core operators, plus recurrent layers, and matrix products of any rank.

    Values that depend on no input become constants.
    """
    table = torch.export.default_decompositions()
    calls = {operator: program.graph.find_nodes(op="call_function", target=operator) for operator in RECURRENT}
    # torch decomposes all calls of a recurrent operator, or none.
    for operator in (*_KEPT_OPS, *(op for op, nodes in calls.items() if all(map(is_convertible, nodes)))):
        del table[operator]
    for operator, decomposition in DECOMPOSITIONS.items():
        table[operator] = first_applicable([decomposition, table[operator]]) if operator in table else decomposition
    decomposed: torch.export.ExportedProgram = program.run_decompositions(table)
    tried: set[Any] = set()
    while decomposable := {op: decomposition_table[op] for op in _unknown(decomposed) - tried}:
        decomposed = decomposed.run_decompositions(DECOMPOSITIONS | decomposable)
        tried |= decomposable.keys()
    fold_program(decomposed)
    rewrite_complex(decomposed)
    return decomposed


def _unknown(program: torch.export.ExportedProgram) -> set[Any]:
    """Return the operators on real tensors that have no converter, but that torch can decompose."""
    nodes = [node for node in program.graph.nodes if node.op == "call_function" and not has_complex(node)]
    known = known_operators()
    return {node.target for node in nodes if node.target in decomposition_table and node.target.__name__ not in known}


RECURRENT = tuple(getattr(torch.ops.aten, name).input for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"))
"""Recurrent operators, which are converted without decomposition if possible."""


def is_convertible(node: Any) -> bool:
    """Whether a recurrent call (a node of a `torch.fx` graph) can be converted: in float32, without projections."""
    data, _, weights, has_biases, n_layers, _, is_training, is_bidirectional, _ = node.args
    n_expected = n_layers * (2 if is_bidirectional else 1) * (4 if has_biases else 2)
    return data.meta["val"].dtype == torch.float32 and len(weights) == n_expected and not is_training


def count_layers(node: Any) -> int:
    """Return the number of layers of a recurrent call; each is one matrix product with all inputs."""
    return int(node.args[4])
