"""Lower a network to scheduled functions: templates for the anchors, the default schedule for the rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tvm
from tvm import ir, relax, s_tir, te, tirx, topi

from anole.compiler.passes.attention import lower_attention, permute
from anole.compiler.passes.broadcast import keep_unfused
from anole.compiler.passes.concat import legalize_concat, write_slices
from anole.compiler.passes.elementwise import (
    fast_math_map,
    legalize_add,
    legalize_by_zero,
    legalize_cast,
    legalize_subtract,
)
from anole.compiler.passes.extremes import extremes_map
from anole.compiler.passes.flatten import flatten_products
from anole.compiler.passes.group_norm import legalize_group_norm
from anole.compiler.passes.reshape import legalize_reshape
from anole.compiler.passes.resize import legalize_resize
from anole.compiler.passes.views import mean_before_permuting, permute_before_enlarging, simplify_views
from anole.compiler.passes.workspace import lift_workspaces
from anole.errors import cause
from anole.extract.graph import workload_of
from anole.extract.passes.weight_only import WEIGHT_ONLY
from anole.ir.kernel_calls import WORKLOAD, Pattern
from anole.ir.nodes import blocks_of, collect, with_ascending_dividends, with_values
from anole.ir.normalize_products import TRANSPOSED_INT8, operands_of
from anole.ir.symbols import is_static, symbols_of, unbound_symbols, with_opaque_extents, with_opaque_types
from anole.keys import canonical_json
from anole.record import Config
from anole.targets.base import ANCHOR, Template
from anole.task import Attention, BatchMatmul, Workload, accumulator_dtype, workload_from_json, workload_to_json

PackedWeights = dict[tuple[ir.GenericConst, Workload, str], ir.GenericConst]
"""Weights packed for a target, by the original constant, its workload and the config as JSON."""


@dataclass(frozen=True)
class Choice:
    """The template and config that a workload is compiled with."""

    template: Template
    config: Config


def lower(
    module: tvm.IRModule,
    choices: Mapping[Workload, Choice],
    schedule_default: Callable[[tirx.PrimFunc], tirx.PrimFunc],
    packed: PackedWeights | None = None,
    only: Collection[Workload] | None = None,
) -> tuple[tvm.IRModule, dict[Workload, str]]:
    """Schedule all functions of a module, pack weights, and fuse epilogues into the anchors.

    The module must be in normal form, see `anole.extract.graph.normalize`. Functions without an anchor get the default
    schedule, and so do workloads that their template cannot schedule in this network; the second result maps these
    workloads to the reason. Buffers between the kernels of one function are planned together with the network's
    tensors. Packed weights are looked up in `packed`, and added if missing. If `only` is given, only functions with
    these workloads are scheduled.
    """
    transform = relax.transform
    anchor = _Legalizer(choices, packed)
    products = ("relax.matmul", "relax.einsum", TRANSPOSED_INT8, WEIGHT_ONLY)
    anchors = dict.fromkeys(("relax.nn.conv2d", *products), anchor)
    legalizers = {
        "relax.add": legalize_add,
        "relax.concat": legalize_concat,
        "relax.astype": legalize_cast,
        "relax.divide": legalize_by_zero,
        "relax.image.resize2d": legalize_resize,
        "relax.reshape": legalize_reshape,
        "relax.multiply": legalize_by_zero,
        "relax.nn.group_norm": legalize_group_norm,
        "relax.subtract": legalize_subtract,
    }
    steps = (
        simplify_views,
        flatten_products,
        transform.CanonicalizeBindings(),
        mean_before_permuting,
        permute_before_enlarging,
        lambda module: lower_attention(module, partial(_attention, choices)),
        transform.LegalizeOps({**fast_math_map(), **extremes_map(), **anchors, **legalizers}),
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
        keep_unfused,
        transform.FuseOps(),
        transform.FuseTIR(),
        transform.DeadCodeElimination(),
        write_slices,
    )
    for step in steps:
        module = step(module)
    failures: dict[Workload, str] = {}
    functions = [(variable, func) for variable, func in module.functions_items() if isinstance(func, tirx.PrimFunc)]
    for variable, func in functions:
        workload = _anchor_workload(func)
        if only is None or workload in only:
            scheduled = with_ascending_dividends(_schedule(func, workload, choices, schedule_default, failures))
            # TVM's own pipelines fuse again, and must not change functions that are already fused and scheduled.
            module.update_func(variable, scheduled.with_attr("op_pattern", int(Pattern.OPAQUE)))
    return lift_workspaces(module), failures


def _schedule(
    func: tirx.PrimFunc,
    workload: Workload | None,
    choices: Mapping[Workload, Choice],
    schedule_default: Callable[[tirx.PrimFunc], tirx.PrimFunc],
    failures: dict[Workload, str],
) -> tirx.PrimFunc:
    if workload is None:
        # TVM removes functions that only reshape, unless a schedule adds conditions.
        only_reshapes = bool(symbols_of(func)) and relax.analysis.has_reshape_pattern(func)
        return func if only_reshapes else schedule_default(func)
    func = func.with_attr(WORKLOAD, _workload_text(workload))
    choice = choices[workload]
    try:
        return with_opaque_extents(func, lambda opaque: choice.template.schedule(opaque, workload, choice.config))
    except Exception as error:
        # An epilogue that the template does not support must not fail the entire build.
        failures[workload] = cause(error)
        return schedule_default(func)


def _anchor_workload(func: tirx.PrimFunc) -> Workload | None:
    """Return the workload of the anchor within a function that is not scheduled yet, or None."""
    texts = (block.annotations.get(WORKLOAD) for block in collect(func.body, s_tir.SBlock))
    return next((workload_from_json(json.loads(str(text))) for text in texts if text is not None), None)


def _workload_text(workload: Workload) -> str:
    return canonical_json(workload_to_json(workload))


class _Legalizer:
    """A legalization that replaces anchor operators by calls of their template's definition, and packs weights."""

    def __init__(self, choices: Mapping[Workload, Choice], packed: PackedWeights | None) -> None:
        self._choices, self._packed = choices, {} if packed is None else packed

    def __call__(self, bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
        workload = workload_of(call)
        if workload is None:
            return call.op.get_attr("FLegalize")(bb, call)
        choice = self._choices[workload]
        data, weight = operands_of(call)
        if workload.constant_weight:
            weight = self._pack(weight, workload, choice)
        # Symbols that appear only inside expressions must be passed as arguments.
        symbols = unbound_symbols([data.ty, weight.ty, call.ty])
        func = bb.add_func(_definition(choice, workload, [data.ty, weight.ty, call.ty], symbols), workload.operator)
        sum_type, dtype = accumulator_dtype(workload.dtype), str(call.ty.dtype)
        result = relax.call_tir(func, [data, weight, *symbols], relax.TensorType(call.ty.shape, sum_type))
        return result if dtype == sum_type else bb.call_te(topi.cast, bb.emit(result), dtype)

    def _pack(self, weight: ir.GenericConst, workload: Workload, choice: Choice) -> ir.GenericConst:
        key = weight, workload, canonical_json(choice.config)
        if key not in self._packed:
            packed = choice.template.pack_weight(workload, choice.config, weight.value.numpy())
            self._packed[key] = relax.const(packed)
        return self._packed[key]


def _with_extents(workload: Workload, **extents: Any) -> Workload:
    """Replace a workload's extents by those that are symbolic."""
    return replace(workload, **{name: extent for name, extent in extents.items() if not is_static(extent)})


def _definition(choice: Choice, workload: Workload, types: Sequence[Any], symbols: Sequence[tirx.Var]) -> tirx.PrimFunc:
    """Create the anchor's function; its block is annotated with the workload and can be fused with epilogues."""
    # With symbolic types, TVM would simplify padded extents, and `with_opaque_extents` could not find the original one.
    (data_ty, packed_ty, result_ty), original_values = with_opaque_types(types)
    data = te.placeholder(list(data_ty.shape), data_ty.dtype, name="data")
    packed = te.placeholder(list(packed_ty.shape), packed_ty.dtype, name="packed")
    extents = {"batch": result_ty.shape[0]}
    if isinstance(workload, BatchMatmul):
        extents |= {"rows": result_ty.shape[1], "columns": result_ty.shape[2], "inner": data_ty.shape[2]}
    result = choice.template.compute(_with_extents(workload, **extents), choice.config, data, packed)
    func = _with_workload(te.create_prim_func([data, packed, *symbols, result], "int64"), workload)
    return with_values(func, original_values).with_attr("op_pattern", int(Pattern.ANCHOR))


def _attention(
    choices: Mapping[Workload, Choice],
    call: ir.Call,
    params: Sequence[te.Tensor | tirx.Var],
    operands: Sequence[te.Tensor],
    shape: Sequence[Any],
) -> tirx.PrimFunc:
    """Create the function of attention; nothing is fused with it."""
    workload = workload_of(call)
    assert isinstance(workload, Attention)
    choice, (batch, rows, _), (_, n_keys, _) = choices[workload], *(operand.shape for operand in operands[:2])
    symbolic = _with_extents(workload, batch=batch, rows=rows, keys=n_keys)
    result = permute(call, choice.template.compute(symbolic, choice.config, *operands), shape)
    func = _with_workload(te.create_prim_func([*params, result], "int64"), workload)
    return func.with_attr("op_pattern", int(Pattern.OPAQUE))


def _with_workload(func: tirx.PrimFunc, workload: Workload) -> tirx.PrimFunc:
    """Return a private function whose anchor's block is annotated with the workload."""
    schedule = s_tir.Schedule(func)
    for rv in blocks_of(schedule):
        if ANCHOR in schedule.get(rv).annotations:
            schedule.annotate(rv, WORKLOAD, _workload_text(workload))
    return schedule.mod["main"].without_attr("global_symbol")
