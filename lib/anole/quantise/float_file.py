"""Writes a model as one ONNX file of float32, with fixed shapes and with norms folded into products."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx
import onnxruntime
from onnx import version_converter

from anole.declared.entries import ModelSpec
from anole.documents.build import TensorInfo
from anole.errors import ExtractError, cause
from anole.evaluate.engines import export_onnx
from anole.extract.onnx.dimensions import input_infos
from anole.extract.onnx.importer import read_onnx

_LEAST_OPSET = 13


def write_float_file(model: ModelSpec, path: Path) -> tuple[TensorInfo, ...]:
    """Writes the file, in which each operator has a name, and returns its inputs.

    Raises:
        ExtractError: the model cannot be loaded, exported, or read by ONNX Runtime.
    """
    proto = read_onnx(model) if model.scheme == "onnx" else _exported(model)
    inputs = input_infos(model, proto)
    shapes = {info.name: info.shape for info in inputs}
    for value in proto.graph.input:
        for dimension, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
            dimension.dim_value = size
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    try:
        content = _with_axes(proto).SerializeToString()
        onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ExtractError(f"model {model.name}: cannot be quantised: {cause(error)}") from error
    folded = onnx.load(path)
    for place, node in enumerate(folded.graph.node):
        node.name = node.name or f"{node.op_type}_{place}"
    onnx.save(folded, path)
    return inputs


def _with_axes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a file whose `DequantizeLinear` may have a scale for each filter, as it may from opset 13 on."""
    opset = next((each.version for each in proto.opset_import if each.domain in ("", "ai.onnx")), _LEAST_OPSET)
    return proto if opset >= _LEAST_OPSET else version_converter.convert_version(proto, _LEAST_OPSET)


def _exported(model: ModelSpec) -> onnx.ModelProto:
    from anole.extract.torch import example_inputs, make_network

    arguments = example_inputs(model)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "exported.onnx")
        try:
            export_onnx(make_network(model), tuple(arguments.values()), path, tuple(arguments))
        except ExtractError:
            raise
        except Exception as error:
            reason = cause(error, line=0)
            raise ExtractError(f"model {model.name}: torch cannot export it to ONNX: {reason}") from error
        return onnx.load(path)
