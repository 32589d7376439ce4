"""Concatenations without copies: each operand's function writes its own slice of the whole.

A concatenation whose operands are each computed by one function, and for nothing else, vanishes: the function gets one
more block that moves its result into the slice, which scheduling fuses with the block before. What is left, such as an
operand that others read too, is copied by a function of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, relax, s_tir, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

_CONCAT = "anole.concat"
_OPAQUE = 8


def legalize_concat(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Makes a concatenation a function of its own, which nothing fuses with."""
    made = ir.Op.get("relax.concat").get_attr("FLegalize")(bb, call)
    axis = int(call.attrs.axis or 0) % len(call.ty.shape)
    func = bb.get()[made.args[0]].with_attrs({_CONCAT: axis, "op_pattern": _OPAQUE})
    return relax.call_tir(bb.add_func(func, "concat"), made.args[1], made.ty_args[0])


def write_slices(module: tvm.IRModule) -> tvm.IRModule:
    """Returns the module, legalised and fused, with every concatenation written slice by slice."""
    rewriter = _Rewriter(module)
    main = rewriter.rewrite(module["main"])
    rewriter.builder_.update_func(module.get_global_var("main"), main)
    return relax.transform.DeadCodeElimination()(rewriter.builder_.get())


@dataclass(frozen=True)
class _Slice:
    """One operand of a concatenation.

    Attributes:
        concat: position of the concatenation among the bindings.
        offset: where the slice begins along the axis.
    """

    concat: int
    operand: ir.Expr
    axis: int
    offset: int
    whole: Any


@mutator
class _Rewriter(PyExprMutator):  # type: ignore[misc]
    """Rewrites the bindings of a function; `self._wholes` holds the latest version of each concatenation."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._module = module
        self._fused: dict[int, _Slice] = {}
        self._copied: dict[int, list[_Slice]] = {}
        self._wholes: dict[int, ir.Expr] = {}
        self._position = -1
        self._positions: list[int] = []

    def rewrite(self, main: relax.Function) -> relax.Function:
        """Returns the function with its concatenations written slice by slice."""
        bindings = [binding for block in main.body.blocks for binding in block.bindings]
        produced = {binding.var: i for i, binding in enumerate(bindings)}
        uses = Counter(var for binding in bindings for var in relax.analysis.all_vars(binding.value))
        uses.update(relax.analysis.all_vars(main.body.body))
        for position, binding in enumerate(bindings):
            slices = self._slices(position, binding.value)
            for each in slices:
                source = produced.get(each.operand) if isinstance(each.operand, relax.Var) else None
                alone = (
                    source is not None
                    and uses[each.operand] == 1
                    and self._extensible(bindings[source].value)
                )
                if alone and sum(other.operand.same_as(each.operand) for other in slices) == 1:
                    self._fused[source] = each
                else:
                    self._copied.setdefault(position, []).append(each)
        return self.visit_expr(main)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self._position += 1
        position = self._position
        if position in self._fused:
            each = self._fused[position]
            call = self.visit_expr(binding.value)
            func = _extended(self._module[call.args[0]], each)
            self._write(each, func, call.args[0].name_hint, call.args[1].fields)
        elif self._slices(position, binding.value):
            for each in self._copied.get(position, []):
                operand = self.visit_expr(each.operand)
                self._write(each, _copying(operand.ty, each), "copy_slice", [operand])
            self.set_var_remap(binding.var, self._wholes[position])
        else:
            super().visit_var_binding_(binding)

    def _write(self, each: _Slice, func: tirx.PrimFunc, name: str, operands: Sequence[ir.Expr]) -> None:
        variable = self.builder_.add_func(func, name)
        if each.concat in self._wholes:
            arguments = [*operands, self._wholes[each.concat]]
            call = relax.op.call_tir_inplace(variable, arguments, [len(operands)], each.whole)
        else:
            call = relax.call_tir(variable, list(operands), each.whole)
        self._wholes[each.concat] = self.builder_.emit(call)

    def _slices(self, position: int, value: ir.Expr) -> list[_Slice]:
        func = self._called(value)
        if func is None or _CONCAT not in (func.attrs or {}):
            return []
        axis, offset, slices = int(func.attrs[_CONCAT]), 0, []
        for operand in value.args[1].fields:
            slices.append(_Slice(position, operand, axis, offset, value.ty))
            offset += int(operand.ty.shape[axis])
        return slices

    def _extensible(self, value: ir.Expr) -> bool:
        func = self._called(value)
        return (
            func is not None and _CONCAT not in (func.attrs or {}) and isinstance(value.ty, relax.TensorType)
        )

    def _called(self, value: ir.Expr) -> tirx.PrimFunc | None:
        if isinstance(value, ir.Call) and isinstance(value.op, ir.Op) and value.op.name == "relax.call_tir":
            func = self._module[value.args[0]]
            return (
                func
                if isinstance(func, tirx.PrimFunc) and isinstance(func.body, s_tir.SBlockRealize)
                else None
            )
        return None


def _extended(func: tirx.PrimFunc, each: _Slice) -> tirx.PrimFunc:
    """Returns the function with its result moved into a slice of a larger one, which takes its place as a parameter."""
    *inputs, result = func.params
    root = func.body.block
    whole = tirx.decl_buffer(list(each.whole.shape), result.ty.dtype, "whole")
    body = tirx.SeqStmt([root.body, _copy_nest(result, whole, each)])
    block = s_tir.SBlock([], [], [], "root", body, alloc_buffers=[*root.alloc_buffers, result])
    return tirx.PrimFunc([*inputs, whole], s_tir.SBlockRealize([], True, block), attrs=func.attrs)


def _copying(ty: Any, each: _Slice) -> tirx.PrimFunc:
    operand = tirx.decl_buffer(list(ty.shape), ty.dtype, "operand")
    whole = tirx.decl_buffer(list(each.whole.shape), ty.dtype, "whole")
    block = s_tir.SBlock([], [], [], "root", _copy_nest(operand, whole, each))
    func = tirx.PrimFunc([operand, whole], s_tir.SBlockRealize([], True, block))
    return func.with_attr("tirx.noalias", True)


def _copy_nest(source: Any, whole: Any, each: _Slice) -> tirx.Stmt:
    extents = list(source.ty.shape)
    loops = [tirx.Var(f"i{axis}", extent.ty.dtype) for axis, extent in enumerate(extents)]
    own = [tirx.Var(f"v_i{axis}", extent.ty.dtype) for axis, extent in enumerate(extents)]
    there = [var + each.offset if axis == each.axis else var for axis, var in enumerate(own)]
    domains = [ir.Range(tirx.const(0, str(extent.ty.dtype)), extent) for extent in extents]
    block = s_tir.SBlock(
        [tirx.IterVar(domain, var, tirx.IterVar.DataPar) for domain, var in zip(domains, own, strict=True)],
        [_point(source, own)],
        [_point(whole, there)],
        "slice",
        tirx.BufferStore(whole, tirx.BufferLoad(source, own), there),
    )
    nest: tirx.Stmt = s_tir.SBlockRealize(loops, True, block)
    for loop, domain in zip(reversed(loops), reversed(domains), strict=True):
        nest = tirx.For(loop, domain.min, domain.extent, tirx.ForKind.SERIAL, nest)
    return nest


def _point(buffer: Any, indices: Sequence[Any]) -> Any:
    return tirx.BufferRegion(buffer, [ir.Range.from_min_extent(index, 1) for index in indices])
