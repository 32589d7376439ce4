"""Input shapes of ONNX models: fix dynamic dimensions by the model's entry in models.yaml."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from anole.documents.build import TensorInfo
from anole.errors import ExtractError, suggestion
from anole.extract.onnx.protos import ONNX_DOMAINS, subgraphs

if TYPE_CHECKING:
    from anole.config.entries import ModelSpec


def input_infos(model: ModelSpec, proto: onnx.ModelProto) -> tuple[TensorInfo, ...]:
    """Return the inputs that are not weights, with shapes from the file and the model's entry.

    Raises:
        ExtractError: a dynamic dimension is not fixed, or the entry contradicts the file or names an unknown input.
    """
    weights = {tensor.name for tensor in proto.graph.initializer}
    values = [value for value in proto.graph.input if value.name not in weights]
    names = [value.name for value in values]
    for name in model.inputs:
        if name not in names:
            problem = f"found {name!r}; {model.location} has {', '.join(names) or 'no input'}"
            raise ExtractError(f"model {model.name}: inputs: {problem}")
    symbols = list(dict.fromkeys(symbol for value in values for symbol in _dims(value) if isinstance(symbol, str)))
    for symbol in model.dims:
        if symbol not in symbols:
            problem = f"found {symbol!r}, which is not a dynamic dimension of any input of {model.location}"
            raise ExtractError(f"model {model.name}: dims: {problem}; {suggestion(symbol, symbols)}")
    return tuple(TensorInfo(value.name, _shape(model, value), dtype_of(value)) for value in values)


def fix_inputs(proto: onnx.ModelProto, inputs: tuple[TensorInfo, ...]) -> None:
    """Write the shapes of all inputs into a model, in place, and remove the recorded shapes of other values.

    The recorded shapes may contain symbols that are now fixed; shape inference recomputes them.
    """
    del proto.graph.input[:]
    proto.graph.input.extend(
        onnx.helper.make_tensor_value_info(
            info.name, onnx.helper.np_dtype_to_tensor_dtype(onnx.numpy_helper.np.dtype(info.dtype)), info.shape
        )
        for info in inputs
    )
    _remove_shapes(proto.graph)


def _remove_shapes(graph: onnx.GraphProto) -> None:
    """Remove value shapes, except for results of operators outside of ONNX's domain, which cannot be inferred."""
    foreign = {name for node in graph.node if node.domain not in ONNX_DOMAINS for name in node.output}
    static = [value for value in graph.value_info if all(isinstance(size, int) for size in _dims(value))]
    remaining = [value for value in static if value.name in foreign]
    del graph.value_info[:]
    graph.value_info.extend(remaining)
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    for node in graph.node:
        for _, subgraph in subgraphs(node):
            _remove_shapes(subgraph)


def _dims(value: onnx.ValueInfoProto) -> list[int | str]:
    """Return the size or symbol of each dimension; exporters also write -1 for a dynamic dimension."""
    dims = value.type.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or "?" for dim in dims]


def _shape(model: ModelSpec, value: onnx.ValueInfoProto) -> tuple[int, ...]:
    where = f"model {model.name}: input {value.name}"
    entry = model.inputs.get(value.name)
    if not value.type.tensor_type.HasField("shape"):
        if entry is None:
            raise ExtractError(f"{where} has no shape; set it in `inputs`")
        return tuple(entry)
    file_dims = _dims(value)
    dims = [size if isinstance(size, int) else model.dims.get(size) for size in file_dims]
    if entry is not None:
        # Exporters may use one symbol for several sizes.
        if len(dims) != len(entry) or any(size not in (None, extent) for size, extent in zip(dims, entry, strict=True)):
            allowed = f"[{', '.join('any' if size is None else str(size) for size in dims)}]"
            raise ExtractError(f"{where}: found shape {list(entry)}; the file has {allowed}")
        return tuple(entry)
    if None in dims:
        text = ", ".join(map(str, file_dims))
        example = f"{{{value.name}: {[size or 1 for size in dims]}}}"
        symbol = next(symbol for symbol, size in zip(file_dims, dims, strict=True) if size is None)
        by_name = f", or by name in `dims`, such as {{{symbol}: 1}}" if symbol != "?" else ""
        raise ExtractError(f"{where} has the dynamic shape [{text}]; fix it in `inputs`, such as {example}{by_name}")
    return tuple(size for size in dims if size is not None)


def dtype_of(value: onnx.ValueInfoProto) -> str:
    """Return the dtype of an input or output."""
    return str(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
