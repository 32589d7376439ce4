"""Import of a model from its ONNX file: read, check, prepare and convert it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from anole.config.onnx_files import OnnxFileError, external_files
from anole.documents.build import TensorInfo
from anole.errors import ExtractError
from anole.extract.error_context import convert_to_extract_error
from anole.extract.imported import Imported
from anole.extract.onnx.dimensions import dtype_of, input_infos
from anole.extract.onnx.selection import select_part
from anole.extract.onnx.validation import check_finite_weights, check_format, check_tensor, external_tensors
from anole.host.guard import step

if TYPE_CHECKING:
    from anole.config.entries import ModelSpec

_ANCHORS = (
    *("Conv", "ConvInteger", "ConvTranspose", "DynamicQuantizeLSTM", "GRU", "Gemm", "LSTM", "MatMul", "MatMulInteger"),
    *("QLinearConv", "QLinearMatMul", "RNN"),
)


def import_onnx(model: ModelSpec) -> Imported:
    """Import an ONNX file.

    Raises:
        ExtractError: the file is missing or corrupt, an input's shape is unknown or contradictory, or an operator is
            not supported.
    """
    from anole.extract.onnx.frontend import import_graph, operators
    from anole.extract.onnx.prepare import count_operators, differences, prepare

    with step(f"reading {model.location}"):
        proto = read_onnx(model)
    inputs = input_infos(model, proto)
    where = f"model {model.name}: {model.location}"
    with convert_to_extract_error(f"{where}: cannot be prepared"), step(f"preparing {model.location}"):
        original_counts = count_operators(proto)
        proto = prepare(proto, inputs, operators(), where)
        prepared = differences(original_counts, count_operators(proto))
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
        tuple(TensorInfo(value.name, (), dtype_of(value)) for value in proto.graph.output),
        tuple(node.name or node.output[0] for node in proto.graph.node if node.op_type in _ANCHORS),
        prepared,
    )


def read_onnx(model: ModelSpec) -> onnx.ModelProto:
    """Load and check an ONNX file with its weights, or the part of it that the entry selects.

    Raises:
        ExtractError: the file is missing, damaged, or fails the checks of `anole.extract.onnx.validation`.
    """
    path = Path(model.location)
    if not path.is_file():
        raise ExtractError(f"model {model.name}: found no file {path}; expected an ONNX file")
    where = f"model {model.name}: {path}"
    with convert_to_extract_error(f"{where} is not an ONNX file, or is damaged"):
        proto = onnx.load(path, format="protobuf", load_external_data=False)
    if not proto.graph.node:
        raise ExtractError(f"{where} is not an ONNX file, or is damaged: it has no operators")
    try:
        external_files(path, strict=True)
    except OnnxFileError as error:
        raise ExtractError(f"{where}: {error}") from error
    proto = select_part(model, proto)
    check_format(proto, where)
    for tensor in external_tensors(proto):
        with convert_to_extract_error(f"{where}: tensor {tensor.name!r} cannot be read"):
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
        check_tensor(tensor, f"{where}: tensor {tensor.name!r}")
    check_finite_weights(proto, where)
    return proto
