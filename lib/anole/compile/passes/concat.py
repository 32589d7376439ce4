"""Concatenations without copies: each operand's function writes its own slice of the result.

A concatenation vanishes if each operand is computed by one function and read by nothing else: the function gets a
further block that moves its result into the slice, and scheduling fuses this block with the one before. Every other
operand, such as one with further readers, is copied by a function of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import ir, relax, s_tir, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm_ffi import dtype

from anole.extract.passes.mutators import variables

WRITTEN_BYTES = "anole.written_bytes"
"""Attribute of a function that writes only a slice of its last parameter: the slice's size in bytes."""

_CONCAT = "anole.concat"
OPAQUE = 8
"""TVM's operator pattern for a function that nothing fuses with."""


def legalize_concat(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Makes a concatenation a separate function, which nothing fuses with."""
    made = call.op.get_attr("FLegalize")(bb, call)
    axis = int(call.attrs.axis or 0) % len(call.ty.shape)
    func = bb.get()[made.args[0]].with_attrs({_CONCAT: axis, "op_pattern": OPAQUE})
    return relax.call_tir(bb.add_func(func, "concat"), made.args[1], made.ty_args[0])


def write_slices(module: tvm.IRModule) -> tvm.IRModule:
    """Returns the module, legalised and fused, with every concatenation written slice by slice."""
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            rewriter = _Rewriter(module, _plan(module, function))
            rewriter.builder_.update_func(variable, rewriter.visit_expr(function))
            module = rewriter.builder_.get()
    return relax.transform.DeadCodeElimination()(module)


@dataclass(frozen=True)
class _Slice:
    """One operand of a concatenation.

    Attributes:
        concat: position of the concatenation among the bindings.
        axis: the concatenated axis.
        offset: where the slice begins along the axis.
        whole: type of the concatenation's result.
    """

    concat: int
    operand: ir.Expr
    axis: int
    offset: int
    whole: Any


@dataclass(frozen=True)
class _Plan:
    """The plan for the bindings, by position.

    Attributes:
        written: bindings that write a slice instead of their own result.
        copied: concatenations, each with the slices that remain to be copied.
    """

    written: Mapping[int, _Slice]
    copied: Mapping[int, Sequence[_Slice]]


def _plan(module: tvm.IRModule, function: relax.Function) -> _Plan:
    bindings = [binding for block in function.body.blocks for binding in block.bindings]
    produced = {binding.var: position for position, binding in enumerate(bindings)}
    uses = Counter(var for binding in bindings for var in variables(binding.value))
    uses.update(variables(function.body.body))
    written: dict[int, _Slice] = {}
    copied: dict[int, list[_Slice]] = {}
    for position, binding in enumerate(bindings):
        func = _called(module, binding.value)
        if func is None or _CONCAT not in func.attrs:
            continue
        copied[position] = []
        for each in _slices(position, binding.value, int(func.attrs[_CONCAT])):
            source = produced.get(each.operand, -1) if isinstance(each.operand, relax.Var) else -1
            if source >= 0 and uses[each.operand] == 1 and _extensible(module, bindings[source].value):
                written[source] = each
            else:
                copied[position].append(each)
    return _Plan(written, copied)


@mutator
class _Rewriter(PyExprMutator):  # type: ignore[misc]
    """Carries out a plan; `self._wholes` maps a concatenation's position to its result as written so far."""

    def __init__(self, module: tvm.IRModule, plan: _Plan) -> None:
        super().__init__(module)
        self._module, self._plan = module, plan
        self._wholes: dict[int, ir.Expr] = {}
        self._position = -1

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self._position += 1
        position, plan = self._position, self._plan
        if position in plan.written:
            call = self.visit_expr(binding.value)
            func = _extended(self._module[call.args[0]], plan.written[position])
            self._write(plan.written[position], func, call.args[0].name_hint, call.args[1].fields)
        elif position in plan.copied:
            for each in plan.copied[position]:
                operand = self.visit_expr(each.operand)
                self._write(each, _copying(operand.ty, each), "copy_slice", [operand])
            whole = self._wholes[position]
            inner = isinstance(binding.var, relax.DataflowVar)
            self.set_var_remap(binding.var, whole if inner else self.builder_.emit_output(whole))
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


def _slices(position: int, call: ir.Call, axis: int) -> Iterator[_Slice]:
    offset = 0
    for operand in call.args[1].fields:
        yield _Slice(position, operand, axis, offset, call.ty)
        offset += int(operand.ty.shape[axis])


def _extensible(module: tvm.IRModule, value: ir.Expr) -> bool:
    func = _called(module, value)
    if func is None or _CONCAT in func.attrs:
        return False
    return isinstance(value.ty, relax.TensorType) and isinstance(func.body, s_tir.SBlockRealize)


def _called(module: tvm.IRModule, value: ir.Expr) -> tirx.PrimFunc | None:
    """Returns the function that a binding calls, or None if its value is not such a call."""
    if isinstance(value, ir.Call) and isinstance(value.op, ir.Op) and value.op.name == "relax.call_tir":
        return module[value.args[0]]
    return None


def _extended(func: tirx.PrimFunc, each: _Slice) -> tirx.PrimFunc:
    """Returns the function with the whole result as its parameter, and its own result moved into a slice of that."""
    *inputs, result = func.params
    root = func.body.block
    whole = tirx.decl_buffer(list(each.whole.shape), result.ty.dtype, "whole")
    body = tirx.SeqStmt([root.body, _copy_nest(result, whole, each)])
    block = s_tir.SBlock([], [], [], "root", body, alloc_buffers=[*root.alloc_buffers, result])
    extended = tirx.PrimFunc([*inputs, whole], s_tir.SBlockRealize([], True, block), attrs=func.attrs)
    return extended.with_attr(WRITTEN_BYTES, _size_bytes(result.ty))


def _copying(ty: Any, each: _Slice) -> tirx.PrimFunc:
    operand = tirx.decl_buffer(list(ty.shape), ty.dtype, "operand")
    whole = tirx.decl_buffer(list(each.whole.shape), ty.dtype, "whole")
    block = s_tir.SBlock([], [], [], "root", _copy_nest(operand, whole, each))
    func = tirx.PrimFunc([operand, whole], s_tir.SBlockRealize([], True, block))
    return func.with_attrs({"tirx.noalias": True, WRITTEN_BYTES: _size_bytes(ty)})


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


def _size_bytes(ty: Any) -> int:
    return prod(map(int, ty.shape)) * int(dtype(str(ty.dtype)).itemsize)


def _point(buffer: Any, indices: Sequence[Any]) -> Any:
    return tirx.BufferRegion(buffer, [ir.Range.from_min_extent(index, 1) for index in indices])
