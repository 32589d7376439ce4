"""Helpers for TensorIR: find and replace blocks, loops and other nodes, and build loop nests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx


def blocks_of(sch: s_tir.Schedule) -> list[Any]:
    """Return the top-level blocks of a schedule's main function, in order."""
    return list(sch.get_child_blocks(sch.get_sblock(sch.mod["main"].body.block.name_hint)))


def collect(root: Any, kind: type) -> list[Any]:
    """Return all nodes of a type within a statement or expression."""
    nodes: list[Any] = []
    tvm_ffi.structural_walk(root, (kind, nodes.append))
    return nodes


def make_prefetch(load: Any, level: int) -> Any:
    """Return a prefetch of an element's cache line for reading, into a cache level."""
    for_reading, locality, data = 0, 4 - level, 1
    return tirx.call_intrin("void", "tirx.prefetch", tirx.address_of(load), for_reading, locality, data)


def chosen(index: Any, values: Sequence[Any]) -> Any:
    """Return the value at an index as a chain of selects, which folds if the loop over the index is unrolled."""
    *leading, value = values
    for position, choice in reversed(list(enumerate(leading))):
        value = tirx.if_then_else(index == position, choice, value)
    return value


def with_values(node: Any, values: Mapping[Any, Any]) -> Any:
    """Substitute variables, including buffers, in a statement or expression."""
    return tvm_ffi.structural_map(node, (tirx.Var, lambda variable: values.get(variable, variable)))


def with_new_definition(node: Any) -> Any:
    """Copy a statement with fresh variables, since a function must define each variable only once."""
    defined = [part.loop_var for part in collect(node, tirx.For)]
    defined += [part.var for kind in (tirx.IterVar, tirx.Let, tirx.Bind) for part in collect(node, kind)]
    return with_values(node, {variable: tirx.Var(variable.name, variable.ty.dtype) for variable in defined})


def map_nodes(func: tirx.PrimFunc, kind: type, change: Callable[[Any], Any]) -> tirx.PrimFunc:
    """Apply a change to all nodes of a type in a function, in post-order."""
    return func.with_body(tvm_ffi.structural_map(func.body, (kind, change), order="post"))


def with_ascending_dividends(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Negate dividends that decrease with a loop: TVM simplifies ``(1 - i) % 16`` to ``-(i % -16)``, which is wrong."""

    def remainder(node: tirx.FloorMod) -> tirx.Expr:
        return node.b - 1 - tirx.floormod(-1 - node.a, node.b) if _descends(node) else node

    def quotient(node: tirx.FloorDiv) -> tirx.Expr:
        return -1 - tirx.floordiv(-1 - node.a, node.b) if _descends(node) else node

    return map_nodes(map_nodes(func, tirx.FloorMod, remainder), tirx.FloorDiv, quotient)


def _descends(division: tirx.FloorMod | tirx.FloorDiv) -> bool:
    subtracted = [node.b for node in collect(division.a, tirx.Sub)]
    subtracted += [node for node in collect(division.a, tirx.Mul) if isinstance(node.b, tirx.IntImm) and node.b < 0]
    return isinstance(division.b, tirx.IntImm) and any(collect(node, tirx.Var) for node in subtracted)


def with_loop(func: tirx.PrimFunc, loop: tirx.For, change: Callable[[tirx.For], tirx.Stmt]) -> tirx.PrimFunc:
    """Apply a change to one loop, identified by its variable."""
    return map_nodes(func, tirx.For, lambda node: change(node) if node.loop_var.same_as(loop.loop_var) else node)


def nest_around(block: s_tir.SBlock) -> tirx.Stmt:
    """Build a serial loop around a block for each of its iteration variables."""
    loops = [tirx.Var(f"i{i}", axis.dom.extent.ty.dtype) for i, axis in enumerate(block.iter_vars)]
    nest: tirx.Stmt = s_tir.SBlockRealize(loops, True, block)
    for loop, axis in zip(reversed(loops), reversed(block.iter_vars), strict=True):
        nest = tirx.For(loop, axis.dom.min, axis.dom.extent, tirx.ForKind.SERIAL, nest)
    return nest


def with_nests(func: tirx.PrimFunc, nests: Sequence[tirx.Stmt], buffers: Sequence[Any]) -> tirx.PrimFunc:
    """Replace a function's body by a sequence of loop nests with intermediate buffers."""
    body = tirx.SeqStmt(nests) if len(nests) > 1 else nests[0]
    root = s_tir.SBlock([], [], [], func.body.block.name_hint, body, alloc_buffers=buffers)
    return tirx.PrimFunc(func.params, s_tir.SBlockRealize([], True, root), attrs=func.attrs)
