"""Normalize a network in Relax and find its anchor operators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import tvm
from tvm import ir, relax

from anole.documents.build import TensorInfo
from anole.errors import ExtractError
from anole.extract.error_context import convert_to_extract_error
from anole.extract.imported import Imported
from anole.extract.passes.as_conv2d import as_conv2d
from anole.extract.passes.attention import ATTENTION, fuse_attention
from anole.extract.passes.canonicalize import canonicalize
from anole.extract.passes.channels_last import sink_permutations, to_channels_last
from anole.extract.passes.drop_empty import drop_empty, reads_empty_operand
from anole.extract.passes.drop_integer_round_trips import drop_integer_round_trips
from anole.extract.passes.exact_sums import split_sums
from anole.extract.passes.fold_constants import fold_constants
from anole.extract.passes.join_branches import join_branches
from anole.extract.passes.low_precision import lower_precision
from anole.extract.passes.merge_affine import merge_affine
from anole.extract.passes.padding import absorb_pads, drop_idle_taps
from anole.extract.passes.subpixel import subpixel
from anole.extract.passes.value_ranges import table_sizes
from anole.extract.passes.weight_only import WEIGHT_ONLY, scheme_of, store_weights
from anole.host.guard import step
from anole.ir.convolutions import is_channels_last
from anole.ir.mutators import bindings, operator_of, value_of
from anole.ir.normalize_products import is_transposed_product, normalize_products, operands_of
from anole.ir.symbols import typical_shape
from anole.targets.base import Target
from anole.task import Attention, BatchMatmul, Conv2d, Dense, Workload

if TYPE_CHECKING:
    from anole.config.entries import ModelSpec

_ANCHORS = ("relax.nn.conv2d", "relax.matmul", WEIGHT_ONLY, ATTENTION)
_ANCHOR_DTYPES = {
    ("float32", "float32", "float32"),
    ("float32", "float32", "int32"),
    ("bfloat16", "bfloat16", "float32"),
    ("uint8", "int8", "int32"),
}
"""The dtypes of the operands and of the result of anchor operators."""
_MAX_ELEMENTS = 2**31
"""Max number of elements of a value; without a limit, constants of any size would be evaluated."""


@dataclass(frozen=True)
class Layer:
    """One anchor operator of a network."""

    name: str
    workload: Workload


def normalize(model: ModelSpec, imported: Imported) -> Imported:
    """Fold batch-norms, evaluate constants and convert to NHWC; the model's interface does not change.

    Raises:
        ExtractError: a shape is not known at compile time, or TVM cannot convert the model.
    """
    transform = relax.transform
    prepare = [drop_empty, fold_constants, as_conv2d]
    inference = [transform.FoldBatchnormToConv2D(), transform.DecomposeOpsForInference()]
    # Fold constants first: the layout conversion crashes on weights that are expressions.
    fold = [
        transform.CanonicalizeBindings(),
        fold_constants,
        transform.CanonicalizeBindings(),
        canonicalize,
        fold_constants,
        transform.DeadCodeElimination(),
    ]
    convert = [to_channels_last, sink_permutations, absorb_pads, drop_idle_taps]
    eliminate = transform.EliminateCommonSubexpr()
    simplify = [
        drop_integer_round_trips,
        transform.CanonicalizeBindings(),
        subpixel,
        normalize_products,
        merge_affine,
        eliminate,
        join_branches,
        merge_affine,
        eliminate,
    ]
    module = imported.module
    _check_sizes(model, module)
    failure = convert_to_extract_error(f"model {model.name}: TVM cannot convert it")
    with failure, step("converting the network"), tvm.target.Target({"kind": "llvm"}):
        for pass_ in (*prepare, *inference, *fold, *convert, *fold, *simplify):
            module = pass_(module)
    main = module["main"]
    if consumers := [operator_of(binding.value) for binding in bindings(main) if reads_empty_operand(binding.value)]:
        raise ExtractError(
            f"model {model.name}: {consumers[0]} reads a tensor without elements; only "
            "slices, concatenations, sums and products of such tensors are supported"
        )
    fields = list(main.ret_ty.fields) if isinstance(main.ret_ty, ir.TupleType) else [main.ret_ty]
    outputs = tuple(_to_static(model, info, ty) for info, ty in zip(imported.outputs, fields, strict=True))
    indexed = table_sizes(main)
    inputs = tuple(
        replace(_to_static(model, info, param.ty), indexed=indexed.get(param))
        for info, param in zip(imported.inputs, main.params, strict=True)
    )
    return replace(imported, module=module, inputs=inputs, outputs=outputs)


def for_target(imported: Imported, target: Target) -> Imported:
    """Convert a normalized model to the dtypes and operators that a target computes; integer sums stay exact."""
    stored = store_weights(imported.module, workload_of, target.in_target_precision)
    module = split_sums(lower_precision(stored, workload_of, target.in_target_precision))
    names = imported.anchors
    if Attention.operator in target.operators:
        anchors = _anchors(module)
        module, fused = fuse_attention(module)
        if len(anchors) == len(names):
            names = tuple(name for name, anchor in zip(names, anchors, strict=True) if anchor not in fused)
    return imported if module is imported.module else replace(imported, module=module, anchors=names)


def _check_sizes(model: ModelSpec, module: tvm.IRModule) -> None:
    """Raise ExtractError if a value of the network has too many elements."""
    for binding in bindings(module["main"]):
        shape = _shape(binding.var.ty)
        if shape is not None and prod(shape) > _MAX_ELEMENTS:
            raise ExtractError(
                f"model {model.name}: {operator_of(binding.value) or 'a value'} has the shape {list(shape)}; "
                f"a value has at most {_MAX_ELEMENTS} elements"
            )


def find_layers(imported: Imported) -> list[Layer]:
    """Return the anchor operators in execution order, named after the model's layers if these are known."""
    anchors = list(_anchors(imported.module).values())
    is_named = len(anchors) == len(imported.anchors)
    names = imported.anchors if is_named else [""] * len(anchors)
    workloads = zip(names, map(workload_of, anchors), strict=True)
    supported = [(name, workload) for name, workload in workloads if workload is not None]
    return [
        Layer(name if is_named else f"{workload.operator}_{position}", workload)
        for position, (name, workload) in enumerate(supported)
    ]


def _anchors(module: tvm.IRModule) -> dict[relax.Var, ir.Expr]:
    """Return the anchor operators by their variables, in execution order."""
    values = ((binding.var, binding.value) for binding in bindings(module["main"]))
    return {var: value for var, value in values if operator_of(value) in _ANCHORS or is_transposed_product(value)}


def workloads_of(module: tvm.IRModule) -> list[Workload]:
    """Return the distinct workloads of all functions of a module."""
    workloads = (workload_of(binding.value) for binding in bindings(module))
    return list(dict.fromkeys(workload for workload in workloads if workload is not None))


def workload_of(call: ir.Expr) -> Workload | None:
    """Return the workload of an anchor operator in normal form, or None for any other expression."""
    if operator_of(call) == "relax.nn.conv2d":
        return _conv2d(call)
    if operator_of(call) == ATTENTION:
        return _attention(call)
    if operator_of(call) == "relax.matmul":
        return _dense(call) or _batch_matmul(call, transpose_right=False)
    if (scheme := scheme_of(call)) is not None:
        rows, inputs = prod(_extents(call.args[0])[:-1]), _extents(call.args[0])[-1]
        return Dense(rows, inputs, _extents(call)[-1], weights=scheme)
    return _batch_matmul(call, transpose_right=True) if is_transposed_product(call) else None


def _extents(expr: ir.Expr) -> tuple[int, ...]:
    """Return the known shape of an expression, at typical sizes."""
    shape = _shape(expr.ty)
    assert shape is not None
    return shape


def _conv2d(call: ir.Call) -> Conv2d | None:
    attrs = call.attrs
    data, weight = (_shape(arg.ty) for arg in call.args)
    if data is None or weight is None or not is_channels_last(call) or not _has_constant_weight(call):
        return None
    top, left, bottom, right = (int(pad) for pad in attrs.padding)
    return Conv2d(
        batch=data[0],
        height=data[1],
        width=data[2],
        in_channels=data[3],
        out_channels=weight[3],
        kernel=(weight[0], weight[1]),
        strides=(int(attrs.strides[0]), int(attrs.strides[1])),
        padding=(top, left, bottom, right),
        dilation=(int(attrs.dilation[0]), int(attrs.dilation[1])),
        groups=int(attrs.groups),
        dtype=_dtype_of(call),
        exact=_is_exact(call),
    )


def _dense(call: ir.Call) -> Dense | None:
    data, weight = (_shape(arg.ty) for arg in call.args)
    if data is None or weight is None or len(weight) != 2 or not data or not _has_constant_weight(call):
        return None
    rows = prod(data[:-1])
    return Dense(rows, in_features=weight[0], out_features=weight[1], dtype=_dtype_of(call), exact=_is_exact(call))


def _batch_matmul(call: ir.Call, transpose_right: bool) -> BatchMatmul | None:
    """Return a batched product's workload; if the right operand is shared, a single product of all rows."""
    left, right = (_shape(operand.ty) for operand in operands_of(call))
    dtype = _dtype_of(call)
    if left is None or right is None or min(len(left), len(right)) < 2 or dtype not in ("float32", "uint8"):
        return None
    columns = right[-2] if transpose_right else right[-1]
    if prod(right[:-2]) == 1:
        return BatchMatmul(1, prod(left[:-1]), left[-1], columns, transpose_right, dtype)
    if left[:-2] != right[:-2]:
        return None
    return BatchMatmul(prod(left[:-2]), left[-2], left[-1], columns, transpose_right, dtype)


def _attention(call: ir.Call) -> Attention:
    queries, keys, values, _, masked, *addends = call.args
    *batch, rows, inner = _extents(queries)
    n_keys, columns = _extents(keys)[-2], _extents(values)[-1]
    return Attention(prod(batch), rows, n_keys, inner, columns, len(addends), bool(value_of(masked)))


def _has_constant_weight(call: ir.Call) -> bool:
    """Whether a call's weight is a constant, which can be packed, and its operands have dtypes of a workload."""
    return isinstance(call.args[1], ir.GenericConst) and bool(_dtype_of(call))


def _dtype_of(call: ir.Call) -> str:
    """Return the dtype of a call's left operand; empty if no workload has these operand and result dtypes."""
    left, right = (str(operand.ty.dtype) for operand in operands_of(call))
    is_known = (left, right, str(call.ty.dtype)) in _ANCHOR_DTYPES
    return left if is_known else ""


def _is_exact(call: ir.Call) -> bool:
    """Whether a product's operands are integers stored as float32; its result then has an integer dtype.

    See `anole.extract.onnx.operators.integer_products`.
    """
    return str(call.ty.dtype) == "int32" and _dtype_of(call) == "float32"


def _shape(ty: Any) -> tuple[int, ...] | None:
    return typical_shape(getattr(ty, "shape", None))


def _to_static(model: ModelSpec, info: TensorInfo, ty: Any) -> TensorInfo:
    shape = _shape(ty)
    if shape is None:
        raise ExtractError(
            f"model {model.name}: the shape of {info.name} is not known at compile time; fix it in `inputs`"
        )
    return TensorInfo(info.name, shape, str(ty.dtype))
