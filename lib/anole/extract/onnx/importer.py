"""Imports models from ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from anole.documents.build import TensorInfo
from anole.errors import ExtractError, cause
from anole.extract.guard import step
from anole.extract.imported import Imported
from anole.extract.onnx.limits import check_format, check_numbers, check_tensor, external_tensors
from anole.spec.onnx_files import OnnxFileError, external_files

if TYPE_CHECKING:
    from anole.spec.entries import ModelSpec

_ANCHORS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def import_onnx(model: ModelSpec) -> Imported:
    """Imports an ONNX file.

    Raises:
        ExtractError: the file is missing or corrupt, an input's shape is unknown or contradictory, or TVM lacks an
            operator.
    """
    from anole.extract.onnx.frontend import import_graph

    with step(f"reading {model.location}"):
        proto = read_onnx(model)
    inputs = input_infos(model, proto)
    shapes = {info.name: info.shape for info in inputs}
    dtypes = {info.name: info.dtype for info in inputs}
    try:
        with step(f"importing {model.location}"):
            module = import_graph(proto, shapes, dtypes)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise ExtractError(f"model {model.name}: TVM cannot import {model.location}: {' '.join(lines[:2])}") from error
    return Imported(
        module,
        inputs,
        tuple(TensorInfo(value.name, (), _dtype(value)) for value in proto.graph.output),
        tuple(node.name or node.output[0] for node in proto.graph.node if node.op_type in _ANCHORS),
    )


def input_infos(model: ModelSpec, proto: onnx.ModelProto) -> tuple[TensorInfo, ...]:
    """Returns the inputs that a caller must give, with shapes from the file and the model's entry.

    Raises:
        ExtractError: a dynamic dimension is not fixed, or the entry contradicts the file.
    """
    weights = {tensor.name for tensor in proto.graph.initializer}
    values = [value for value in proto.graph.input if value.name not in weights]
    unknown = sorted(set(model.inputs) - {value.name for value in values})
    if unknown:
        names = ", ".join(value.name for value in values)
        raise ExtractError(f"model {model.name}: inputs: found {unknown[0]!r}; {model.location} has {names}")
    return tuple(TensorInfo(value.name, _shape(model, value), _dtype(value)) for value in values)


def read_onnx(model: ModelSpec) -> onnx.ModelProto:
    """Returns an ONNX file with all its weights, checked.

    Raises:
        ExtractError: the file is missing or damaged, or is not allowed, see `anole.extract.onnx.limits`.
    """
    path = Path(model.location)
    if not path.is_file():
        raise ExtractError(f"model {model.name}: found no file {path}; expected an ONNX file")
    where = f"model {model.name}: {path}"
    try:
        proto = onnx.load(path, format="protobuf", load_external_data=False)
    except Exception as error:
        raise ExtractError(f"{where} is not an ONNX file, or is damaged: {cause(error)}") from error
    if not proto.graph.node:
        raise ExtractError(f"{where} is not an ONNX file, or is damaged: it holds no operator")
    try:
        external_files(path, strict=True)
    except OnnxFileError as error:
        raise ExtractError(f"{where}: {error}") from error
    check_format(proto, where)
    for tensor in external_tensors(proto):
        try:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
        except Exception as error:
            raise ExtractError(f"{where}: tensor {tensor.name!r} cannot be read: {cause(error)}") from error
        check_tensor(tensor, f"{where}: tensor {tensor.name!r}")
    check_numbers(proto, where)
    return proto


def _shape(model: ModelSpec, value: Any) -> tuple[int, ...]:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape") and value.name not in model.inputs:
        raise ExtractError(f"model {model.name}: input {value.name} has no shape; give it in `inputs`")
    dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    given = model.inputs.get(value.name)
    if given is None:
        if None in dims:
            shown = [
                dim.dim_param or "?" if size is None else size for dim, size in zip(tensor.shape.dim, dims, strict=True)
            ]
            raise ExtractError(
                f"model {model.name}: input {value.name} has the dynamic shape [{', '.join(map(str, shown))}]; "
                f"fix it in `inputs`, such as {{{value.name}: {[size or 1 for size in dims]}}}"
            )
        return tuple(size for size in dims if size is not None)
    agrees = not dims or (len(dims) == len(given) and all(d in (None, g) for d, g in zip(dims, given, strict=True)))
    if not agrees:
        allowed = ["any" if size is None else size for size in dims]
        raise ExtractError(f"model {model.name}: input {value.name}: found shape {list(given)}; the file has {allowed}")
    return tuple(given)


def _dtype(value: Any) -> str:
    return str(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
