"""Load a model as one ONNX file with fixed shapes, and fold normalization layers into the operators before them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx
import onnxruntime

from anole.config.entries import ModelSpec
from anole.documents.build import TensorInfo
from anole.errors import ExtractError, cause
from anole.evaluate.engines import export_onnx
from anole.extract.onnx.dimensions import fix_inputs, input_infos
from anole.extract.onnx.importer import read_onnx
from anole.extract.onnx.protos import upgrade_opset

_MIN_OPSET = 13
"""The first opset in which `DequantizeLinear` supports per-channel scales."""

_BIASED_OPERATORS = ("Conv", "ConvTranspose", "Gemm")


def read_file(model: ModelSpec) -> tuple[onnx.ModelProto, tuple[TensorInfo, ...]]:
    """Return a model as an ONNX file, and its inputs.

    Raises:
        ExtractError: the model cannot be loaded or exported.
    """
    proto = read_onnx(model) if model.scheme == "onnx" else _export(model)
    inputs = input_infos(model, proto)
    fix_inputs(proto, inputs)
    return proto, inputs


def write_folded(model: ModelSpec, proto: onnx.ModelProto, path: Path) -> None:
    """Write a file in which each operator has a name, and normalization is folded into the preceding operators.

    Raises:
        ExtractError: the file cannot be upgraded to the required opset, or ONNX Runtime cannot read it.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    try:
        content = upgrade_opset(proto, _MIN_OPSET).SerializeToString()
        onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ExtractError(f"model {model.name}: cannot be quantized: {cause(error)}") from error
    folded = onnx.load(path)
    for number, node in enumerate(folded.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    _prepare_biases(folded)
    onnx.save(folded, path)


def _prepare_biases(proto: onnx.ModelProto) -> None:
    """Give each convolution and matrix product its own one-dimensional bias, as ONNX Runtime's quantizer expects.

    The quantizer would name the copies of a shared bias by appending numbers, which may clash with other names.
    """
    initializers, seen = {tensor.name: tensor for tensor in proto.graph.initializer}, set()
    for node in proto.graph.node:
        bias = initializers.get(node.input[2]) if node.op_type in _BIASED_OPERATORS and len(node.input) > 2 else None
        if bias is None:
            continue
        if bias.name in seen:
            shared, bias = bias, proto.graph.initializer.add()
            bias.CopyFrom(shared)
            bias.name = node.input[2] = f"{node.name}_{shared.name}"
        seen.add(bias.name)
        if node.op_type == "Gemm" and len(bias.dims) == 2 and bias.dims[0] == 1:
            del bias.dims[0]


def _export(model: ModelSpec) -> onnx.ModelProto:
    from anole.extract.binding import bind
    from anole.extract.torch import example_inputs, make_network, output_names, run_network

    network, arguments = make_network(model), example_inputs(model)
    outputs = output_names(len(run_network(model, network, arguments)))
    binding = bind(model, network)
    args, kwargs = binding.arguments(list(arguments.values()))
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "exported.onnx")
        try:
            export_onnx(network, args, path, (*binding.positional, *kwargs), kwargs, outputs)
        except Exception as error:
            reason = cause(error, line=0)
            raise ExtractError(f"model {model.name}: torch cannot export it to ONNX: {reason}") from error
        proto = onnx.load(path)
    # Builds have their inputs in the order of models.yaml, not of the network.
    ordered_inputs = sorted(proto.graph.input, key=lambda value: binding.inputs.index(value.name))
    del proto.graph.input[:]
    proto.graph.input.extend(ordered_inputs)
    return proto
