"""Concatenations without copies: each operand's function writes its own slice of the result.

A concatenation vanishes if each operand is computed by one function and has no other consumers: the function gets
another block that moves its result into the slice, and scheduling fuses this block with the previous one. Every other
operand, such as one with several consumers, is copied by a separate function.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, relax, s_tir, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.kernel_calls import Pattern, called_kernel, mark, size_bytes
from anole.ir.mutators import bindings, read_counts, rewrite
from anole.ir.symbols import all_static

WRITTEN_BYTES = "anole.written_bytes"
"""Attribute of a function that writes only a slice of its last parameter: the slice's size in bytes."""

_CONCAT = "anole.concat"
"""Attribute of a concatenation: its axis."""


def legalize_concat(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Legalize a concatenation as a separate function that never fuses, unless its axis varies."""
    axis = int(call.attrs.axis or 0) % len(call.ty.shape)
    legalized = call.op.get_attr("FLegalize")(bb, call)
    if not all_static([call.ty.shape[axis]]):
        return legalized
    return mark(bb, legalized, Pattern.OPAQUE, "concat", **{_CONCAT: axis})


def write_slices(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite a legalized and fused module to write every concatenation slice by slice."""
    return relax.transform.DeadCodeElimination()(rewrite(module, _Slicer))


@dataclass(frozen=True)
class _Slice:
    """One operand of a concatenation.

    Attributes:
        concat: the variable of the concatenation's result.
        axis: the concatenated axis.
        offset: start of the slice along the axis.
    """

    concat: relax.Var
    operand: ir.Expr
    axis: int
    offset: int


@mutator
class _Slicer(PyExprMutator):  # type: ignore[misc]
    """A mutator that plans which function writes each slice, and rewrites the bindings of these variables."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._module = module
        self._written_slices: dict[relax.Var, _Slice] = {}
        """The slices that are written by the functions that compute them."""
        self._copied_slices: dict[relax.Var, list[_Slice]] = {}
        """The slices of each concatenation that must be copied."""
        self._results: dict[relax.Var, ir.Expr] = {}
        """The result of each concatenation as written so far."""
        values = {binding.var: binding.value for binding in bindings(module)}
        uses = read_counts(module)
        for var, value in values.items():
            if not self._is_concat(value):
                continue
            self._copied_slices[var] = []
            for slice_ in self._slices(var, value):
                source = values.get(slice_.operand) if isinstance(slice_.operand, relax.Var) else None
                if source is not None and uses[slice_.operand] == 1 and self._is_extensible(source):
                    self._written_slices[slice_.operand] = slice_
                else:
                    self._copied_slices[var].append(slice_)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var in self._written_slices:
            call, slice_ = self.visit_expr(binding.value), self._written_slices[binding.var]
            func = _with_slice_output(self._module[call.args[0]], slice_)
            self._write(slice_, func, call.args[0].name_hint, call.args[1].fields)
        elif binding.var in self._copied_slices:
            for slice_ in self._copied_slices[binding.var]:
                operand = self.visit_expr(slice_.operand)
                self._write(slice_, _copy_function(operand.ty, slice_), "copy_slice", [operand])
            result = self._results[binding.var]
            is_internal = isinstance(binding.var, relax.DataflowVar)
            self.set_var_remap(binding.var, result if is_internal else self.builder_.emit_output(result))
        else:
            super().visit_var_binding_(binding)

    def _is_concat(self, value: ir.Expr) -> bool:
        func = called_kernel(self._module, value)
        return func is not None and _CONCAT in func.attrs

    def _is_extensible(self, value: ir.Expr) -> bool:
        func = called_kernel(self._module, value)
        if func is None or _CONCAT in func.attrs:
            return False
        return isinstance(value.ty, relax.TensorType) and isinstance(func.body, s_tir.SBlockRealize)

    def _slices(self, concat: relax.Var, call: ir.Call) -> Iterator[_Slice]:
        axis, offset = int(self._module[call.args[0]].attrs[_CONCAT]), 0
        for operand in call.args[1].fields:
            yield _Slice(concat, operand, axis, offset)
            offset += int(operand.ty.shape[axis])

    def _write(self, slice_: _Slice, func: tirx.PrimFunc, name: str, operands: Sequence[ir.Expr]) -> None:
        variable, result_type = self.builder_.add_func(func, name), slice_.concat.ty
        if slice_.concat in self._results:
            arguments = [*operands, self._results[slice_.concat]]
            call = relax.op.call_tir_inplace(variable, arguments, [len(operands)], result_type)
        else:
            call = relax.call_tir(variable, list(operands), result_type)
        self._results[slice_.concat] = self.builder_.emit(call)


def _with_slice_output(func: tirx.PrimFunc, slice_: _Slice) -> tirx.PrimFunc:
    """Make the concatenation's result the last parameter; the function's own result is moved to its slice."""
    *inputs, result = func.params
    root = func.body.block
    output = tirx.decl_buffer(list(slice_.concat.ty.shape), result.ty.dtype, "whole")
    body = tirx.SeqStmt([root.body, _copy_nest(result, output, slice_)])
    block = s_tir.SBlock([], [], [], "root", body, alloc_buffers=[*root.alloc_buffers, result])
    extended = tirx.PrimFunc([*inputs, output], s_tir.SBlockRealize([], True, block), attrs=func.attrs)
    return extended.with_attr(WRITTEN_BYTES, size_bytes(result.ty))


def _copy_function(ty: Any, slice_: _Slice) -> tirx.PrimFunc:
    operand = tirx.decl_buffer(list(ty.shape), ty.dtype, "operand")
    output = tirx.decl_buffer(list(slice_.concat.ty.shape), ty.dtype, "whole")
    block = s_tir.SBlock([], [], [], "root", _copy_nest(operand, output, slice_))
    func = tirx.PrimFunc([operand, output], s_tir.SBlockRealize([], True, block))
    return func.with_attrs({"tirx.noalias": True, WRITTEN_BYTES: size_bytes(ty)})


def _copy_nest(source: Any, output: Any, slice_: _Slice) -> tirx.Stmt:
    extents = list(source.ty.shape)
    loops = [tirx.Var(f"i{axis}", extent.ty.dtype) for axis, extent in enumerate(extents)]
    source_indices = [tirx.Var(f"v_i{axis}", extent.ty.dtype) for axis, extent in enumerate(extents)]
    target_indices = [var + slice_.offset if axis == slice_.axis else var for axis, var in enumerate(source_indices)]
    domains = [ir.Range(tirx.const(0, str(extent.ty.dtype)), extent) for extent in extents]
    block = s_tir.SBlock(
        [tirx.IterVar(domain, var, tirx.IterVar.DataPar) for domain, var in zip(domains, source_indices, strict=True)],
        [_element_region(source, source_indices)],
        [_element_region(output, target_indices)],
        "slice",
        tirx.BufferStore(output, tirx.BufferLoad(source, source_indices), target_indices),
    )
    nest: tirx.Stmt = s_tir.SBlockRealize(loops, True, block)
    for loop, domain in zip(reversed(loops), reversed(domains), strict=True):
        nest = tirx.For(loop, domain.min, domain.extent, tirx.ForKind.SERIAL, nest)
    return nest


def _element_region(buffer: Any, indices: Sequence[Any]) -> Any:
    return tirx.BufferRegion(buffer, [ir.Range.from_min_extent(index, 1) for index in indices])
