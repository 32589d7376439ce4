"""Validation of ONNX models: the format, and limits on size, nesting, dtypes and domains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, TensorProto

from anole.errors import ExtractError, shown
from anole.extract.onnx.protos import ONNX_DOMAINS, subgraphs

MAX_ELEMENTS = 2**31
"""Max number of elements of a tensor."""

MAX_BYTES = 2**34
"""Max total size of all weights."""

MAX_NODES = 100_000
"""Max number of operators, including those of subgraphs and, per call, those of functions."""

MAX_DEPTH = 8
"""Max nesting depth of subgraphs."""

OPSETS = range(1, onnx.defs.onnx_opset_version() + 1)
"""The opsets that a model may import."""

DOMAINS = (*ONNX_DOMAINS, "com.microsoft")
"""The domains of operators that TVM's importer supports."""

_BITS = {
    **dict.fromkeys(("DOUBLE", "INT64", "UINT64"), 64),
    **dict.fromkeys(("FLOAT", "INT32", "UINT32"), 32),
    **dict.fromkeys(("FLOAT16", "BFLOAT16", "INT16", "UINT16"), 16),
    **dict.fromkeys(("BOOL", "INT8", "UINT8", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"), 8),
    **dict.fromkeys(("INT4", "UINT4"), 4),
}
_TYPES = {getattr(TensorProto, name): bits for name, bits in _BITS.items()}
_DATA_FIELDS = ("raw_data", "float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_POSITIVE_ATTRS = ("dilations", "group", "kernel_shape", "output_shape", "strides")
_SIGNED = ("output_padding", "pads")
_WEIGHTED_OPS = ("BatchNormalization", "Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators whose weights must be finite; in other operators, infinity may be a mask, and NaN the bound of a Clip."""


@dataclass(frozen=True)
class _Part:
    """A graph, subgraph or function, with its location for messages."""

    graph: onnx.GraphProto | onnx.FunctionProto
    location: str
    depth: int


def check_format(proto: ModelProto, where: str) -> None:
    """Check a model before its external weights are loaded.

    Args:
        proto: the model.
        where: prefix of messages: the model and its file.

    Raises:
        ExtractError: the first violation, with its location and the allowed values.
    """
    versions = [opset.version for opset in proto.opset_import if opset.domain in ONNX_DOMAINS]
    if len(versions) != 1 or versions[0] not in OPSETS:
        opsets = " and ".join(map(str, versions)) or "none"
        raise ExtractError(f"{where}: found opset {opsets}; use one from {OPSETS[0]} to {OPSETS[-1]}")
    sizes = _function_sizes(proto, where)
    size = n_nodes = 0
    for part in _parts(proto, where):
        n_nodes += _n_nodes(part, sizes)
        if n_nodes > MAX_NODES:
            raise ExtractError(f"{where}: has more than {MAX_NODES} operators, the maximum")
        if isinstance(part.graph, onnx.GraphProto):
            _check_values(part)
        for tensor, location in _tensors(part):
            size += check_tensor(tensor, location)
            if size > MAX_BYTES:
                raise ExtractError(f"{where}: declares more than {MAX_BYTES} bytes of weights, the maximum")
        for node in part.graph.node:
            _check_node(node, sizes, f"{part.location}: operator {_label(node)}")
    _run_onnx_checker(proto, where)


def check_tensor(tensor: TensorProto, location: str) -> int:
    """Check the dtype, shape and size of a constant tensor, and return its size in bytes.

    Raises:
        ExtractError: a property is not allowed, or the properties contradict each other.
    """
    _check_type(tensor.data_type, location)
    _check_dims(tensor.dims, location)
    n_elements = prod(tensor.dims)
    expected: int = (n_elements * _TYPES[tensor.data_type] + 7) // 8
    if tensor.data_location == TensorProto.EXTERNAL:
        lengths = [int(entry.value) for entry in tensor.external_data if entry.key == "length"]
        n_bytes = lengths[-1] if lengths else expected
    else:
        used_fields = [name for name in _DATA_FIELDS if getattr(tensor, name)]
        if len(used_fields) > 1:
            raise ExtractError(f"{location}: found values in {' and '.join(used_fields)}; only one field may be set")
        n_bytes = len(tensor.raw_data) if tensor.raw_data else _listed_bytes(tensor)
    if n_bytes != expected:
        raise ExtractError(f"{location}: found {n_bytes} bytes; shape {shown(list(tensor.dims))} has {expected}")
    return expected


def check_finite_weights(proto: ModelProto, where: str) -> None:
    """Check that the weights of convolutions, matrix products and batch norms are finite.

    Raises:
        ExtractError: such a weight is NaN or infinite.
    """
    parts = list(_parts(proto, where))
    names = {name for part in parts for node in part.graph.node if node.op_type in _WEIGHTED_OPS for name in node.input}
    for part in parts:
        for tensor, location in _tensors(part, names):
            values = _float_values(tensor)
            n_bad, problem = int(np.isnan(values).sum()), "not a number (NaN)"
            if not n_bad:
                n_bad, problem = int(np.isinf(values).sum()), "infinite"
            if n_bad:
                raise ExtractError(
                    f"{location}: {n_bad} of {values.size} values are {problem}; weights must be finite, since outputs "
                    "cannot be compared otherwise"
                )


def external_tensors(proto: ModelProto) -> list[TensorProto]:
    """Return the tensors whose values are in external files."""
    external = TensorProto.EXTERNAL
    parts = _parts(proto, "")
    return [tensor for part in parts for tensor, _ in _tensors(part) if tensor.data_location == external]


def _parts(proto: ModelProto, where: str) -> Iterator[_Part]:
    """Yield a model's graph, functions, and all their subgraphs."""
    functions = [_Part(function, f"{where}: function {shown(function.name)}", 0) for function in proto.functions]
    for top in (_Part(proto.graph, where, 0), *functions):
        yield from _subgraphs(top)


def _subgraphs(top: _Part) -> Iterator[_Part]:
    """Yield a graph and all its subgraphs."""
    parts = [top]
    while parts:
        part = parts.pop()
        if part.depth > MAX_DEPTH:
            raise ExtractError(f"{part.location}: subgraphs are nested {part.depth} deep; the maximum is {MAX_DEPTH}")
        yield part
        for node in part.graph.node:
            for name, graph in subgraphs(node):
                parts.append(_Part(graph, f"{top.location}: {name[:80]} of operator {_label(node)}", part.depth + 1))


def _tensors(part: _Part, names: Set[str] | None = None) -> Iterator[tuple[TensorProto, str]]:
    """Yield the constant tensors of one graph with their locations; if `names` is given, only those tensors."""
    for tensor in getattr(part.graph, "initializer", ()):
        if names is None or tensor.name in names:
            yield tensor, f"{part.location}: tensor {shown(tensor.name)}"
    for node in part.graph.node:
        if names is not None and names.isdisjoint(node.output):
            continue
        for attribute in node.attribute:
            tensors = [*attribute.tensors, *([attribute.t] if attribute.HasField("t") else [])]
            yield from (
                (tensor, f"{part.location}: {attribute.name[:80]} of operator {_label(node)}") for tensor in tensors
            )


def _check_values(part: _Part) -> None:
    """Check the declared types and shapes of a graph's inputs, outputs and values."""
    graph = part.graph
    if graph.sparse_initializer:
        raise ExtractError(f"{part.location}: found a sparse tensor; only dense ones are allowed")
    for values, kind in ((graph.input, "input"), (graph.output, "output"), (graph.value_info, "value")):
        for name, count in Counter(value.name for value in values).items():
            if count > 1 and kind != "value":
                raise ExtractError(
                    f"{part.location}: {kind} {shown(name)} is declared {count} times; remove duplicates"
                )
        for value in values:
            location = f"{part.location}: {kind} {shown(value.name)}"
            # Values within graphs and subgraphs often have no type, and may be sequences.
            if kind != "value" and part.depth == 0:
                if value.type.WhichOneof("value") not in ("tensor_type", None):
                    raise ExtractError(
                        f"{location}: found a {value.type.WhichOneof('value')}; only tensors are allowed"
                    )
                _check_type(value.type.tensor_type.elem_type, location)
            sizes = [dim.dim_value for dim in value.type.tensor_type.shape.dim if dim.HasField("dim_value")]
            # Some exporters write -1 for a dynamic dimension.
            dims = [dim for dim in sizes if dim != -1]
            _check_dims(dims, location, minimum=int(kind == "input"))


def _check_type(elem_type: int, location: str) -> None:
    if elem_type not in _TYPES:
        types = TensorProto.DataType.items()
        type_name = next((f"{name} ({value})" for name, value in types if value == elem_type), str(elem_type))
        raise ExtractError(f"{location}: found element type {type_name}; allowed: {', '.join(_BITS)}")


def _check_dims(dims: Sequence[int], location: str, minimum: int = 0) -> None:
    if any(dim < minimum for dim in dims):
        raise ExtractError(f"{location}: found shape {shown(list(dims))}; each extent must be at least {minimum}")
    if len(dims) > 64 or prod(dims) > MAX_ELEMENTS:
        raise ExtractError(f"{location}: found shape {shown(list(dims))}; a tensor has at most {MAX_ELEMENTS} elements")


def _listed_bytes(tensor: TensorProto) -> int:
    """Return the size in bytes of values that are not stored in `raw_data`."""
    n_listed: int = len(getattr(tensor, onnx.helper.tensor_dtype_to_field(tensor.data_type)))
    bits = _TYPES[tensor.data_type]
    # Two 4-bit values share one entry.
    return n_listed if bits < 8 else n_listed * bits // 8


def _function_sizes(proto: ModelProto, where: str) -> dict[tuple[str, str], int]:
    """Return the number of operators in each function of a file, by domain and name.

    Raises:
        ExtractError: a function calls itself, or is defined twice.
    """
    functions = {(function.domain, function.name): function for function in proto.functions}
    if len(functions) < len(proto.functions):
        raise ExtractError(f"{where}: two functions have the same name and domain")
    parts = {key: list(_subgraphs(_Part(function, "", 0))) for key, function in functions.items()}
    sizes: dict[tuple[str, str], int] = {}
    calls = {
        key: {(node.domain, node.op_type) for part in graphs for node in part.graph.node} & functions.keys()
        for key, graphs in parts.items()
    }
    try:
        for key in TopologicalSorter(calls).static_order():
            # Clamped, since each level of functions that call another function twice doubles the size.
            sizes[key] = min(sum(_n_nodes(part, sizes) for part in parts[key]), MAX_NODES + 1)
    except CycleError as error:
        names = " calls ".join(name for _, name in error.args[1])[:200]
        raise ExtractError(f"{where}: a function calls itself: {names}") from error
    return sizes


def _n_nodes(part: _Part, sizes: Mapping[tuple[str, str], int]) -> int:
    """Return the number of operators of one graph, including the functions that it calls."""
    return sum(sizes.get((node.domain, node.op_type), 1) for node in part.graph.node)


def _check_node(node: onnx.NodeProto, functions: Collection[tuple[str, str]], location: str) -> None:
    if node.domain not in DOMAINS and (node.domain, node.op_type) not in functions:
        allowed = ", ".join(map(repr, DOMAINS))
        raise ExtractError(f"{location}: found domain {shown(node.domain)}; allowed: {allowed}")
    for attribute in node.attribute:
        if attribute.type in (AttributeProto.SPARSE_TENSOR, AttributeProto.SPARSE_TENSORS):
            raise ExtractError(f"{location}: {attribute.name[:80]}: found a sparse tensor; only dense ones are allowed")
        values = [*attribute.ints, attribute.i] if attribute.type == AttributeProto.INT else attribute.ints
        minimum = 1 if attribute.name in _POSITIVE_ATTRS else 1 - MAX_ELEMENTS if attribute.name in _SIGNED else None
        if minimum is not None and not all(minimum <= value < MAX_ELEMENTS for value in values):
            problem = f"found {shown(list(values))}; each must be from {minimum} to {MAX_ELEMENTS - 1}"
            raise ExtractError(f"{location}: {attribute.name}: {problem}")
        if node.op_type != "Constant" and any(np.isnan([attribute.f, *attribute.floats])):
            raise ExtractError(f"{location}: {attribute.name[:80]}: found NaN; expected a number")


def _run_onnx_checker(proto: ModelProto, where: str) -> None:
    """Run ONNX's own checker on the model without weights, which it would copy twice."""
    bare = ModelProto()
    bare.CopyFrom(proto)
    for part in _parts(bare, where):
        for tensor, _ in _tensors(part):
            tensor.dims[:] = [0]
            for field in (*_DATA_FIELDS, "external_data", "data_location"):
                tensor.ClearField(field)
        # The checker requires shapes that the importer infers by itself.
        for value in (*part.graph.input, *part.graph.output, *part.graph.value_info):
            # A function's inputs and outputs are plain names.
            if isinstance(value, onnx.ValueInfoProto) and value.type.HasField("tensor_type"):
                value.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(bare)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ExtractError(f"{where}: breaks ONNX's format: {' '.join(lines)[:1000]}") from error


def _float_values(tensor: TensorProto) -> Any:
    """Return the values of a floating-point tensor, or an empty array for other dtypes."""
    if tensor.data_type not in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16):
        return np.zeros(0, np.float32)
    values = onnx.numpy_helper.to_array(tensor)
    return values.astype(np.float32) if tensor.data_type == TensorProto.BFLOAT16 else values


def _label(node: onnx.NodeProto) -> str:
    return f"{node.op_type[:80]} {shown(node.name or next(iter(node.output), ''))}"
