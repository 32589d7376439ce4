"""Builds the loop nest around a block whose iteration variables are its loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import s_tir, tirx


def nest_around(block: s_tir.SBlock) -> tirx.Stmt:
    """Returns serial loops around a block, one for each of its iteration variables."""
    loops = [tirx.Var(f"i{at}", each.dom.extent.ty.dtype) for at, each in enumerate(block.iter_vars)]
    nest: tirx.Stmt = s_tir.SBlockRealize(loops, True, block)
    for loop, each in zip(reversed(loops), reversed(block.iter_vars), strict=True):
        nest = tirx.For(loop, each.dom.min, each.dom.extent, tirx.ForKind.SERIAL, nest)
    return nest


def with_nests(func: tirx.PrimFunc, nests: Sequence[tirx.Stmt], buffers: Sequence[Any]) -> tirx.PrimFunc:
    """Returns the function with other nests, one after another, and other buffers between them."""
    body = tirx.SeqStmt(nests) if len(nests) > 1 else nests[0]
    root = s_tir.SBlock([], [], [], func.body.block.name_hint, body, alloc_buffers=buffers)
    return tirx.PrimFunc(func.params, s_tir.SBlockRealize([], True, root), attrs=func.attrs)
