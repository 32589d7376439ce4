"""References for low-precision builds: one rounds as a target does, one computes a quantized file without fusing.

The distance of the first from float32 determines the tolerance for a build. The second fuses only products. ONNX
Runtime also fuses other operators with the quantization of their results; some of these, such as the addition of two
tensors with different scales, round differently. In a deep network, one rounding difference causes many more in later
layers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anole.config.entries import ModelSpec
from anole.evaluate.engines import Engine, onnxruntime_engine, torch_engine, torch_network
from anole.targets import get_target, kind_of
from anole.targets.base import Target
from anole.targets.kind import Rounding
from anole.targets.shared.weight_only import quantize_for_target

if TYPE_CHECKING:
    import onnx


PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""The ONNX operators for matrix products and convolutions."""

_MIN_OPSET = 13
"""The first opset whose `Cast` supports bfloat16."""


@contextmanager
def low_precision_engine(
    model: ModelSpec, description: Mapping[str, Any], inputs: Sequence[NDArray[Any]], threads: int
) -> Iterator[Engine]:
    """Yield torch, or ONNX Runtime on a modified file, with weights rounded if the target rounds them.

    If the target rounds operands, torch uses autocast, and the file gets casts before convolutions and matrix products.

    Raises:
        ExtractError: the model cannot be loaded.
        BuildError: ONNX Runtime cannot load the file.
    """
    target, rounding = get_target(description), kind_of(description).rounding(description) or Rounding()
    if model.scheme != "onnx":
        yield _rounding_torch_engine(model, target, rounding, inputs, threads)
        return
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "narrow.onnx")
        path.write_bytes(_rounded_file(model, target, rounding))
        yield onnxruntime_engine(path, inputs, threads)


def _rounding_torch_engine(
    model: ModelSpec, target: Target, rounding: Rounding, inputs: Sequence[NDArray[Any]], threads: int
) -> Engine:
    import torch

    from anole.evaluate.torch_wrappers import RoundedWeights

    network, arguments = torch_network(model, inputs, threads)
    engine = torch_engine(network, arguments)
    dtype = None if rounding.dtype is None else getattr(torch, rounding.dtype)

    def run() -> Any:
        with ExitStack() as stack:
            if dtype is not None:
                stack.enter_context(torch.autocast("cpu", dtype))
            if rounding.low_precision_weights:
                stack.enter_context(RoundedWeights(network, target))
            return engine.run()

    def outputs(result: Any) -> list[NDArray[Any]]:
        from anole.extract.torch import tensors_of

        return [(tensor.float() if tensor.dtype is dtype else tensor).numpy() for tensor in tensors_of(result)]

    return replace(engine, run=run, convert_outputs=outputs)


def _rounded_file(model: ModelSpec, target: Target, rounding: Rounding) -> bytes:
    """Return the content of a model's file, including its weights, modified to round as a target does."""
    from anole.extract.onnx.importer import read_onnx
    from anole.extract.onnx.protos import upgrade_opset

    proto = upgrade_opset(read_onnx(model), _MIN_OPSET)
    if rounding.dtype is not None:
        _round_products(proto, rounding.dtype)
    if rounding.low_precision_weights:
        _round_weights(proto, model, target)
    return bytes(proto.SerializeToString())


def _round_products(proto: onnx.ModelProto, dtype: str) -> None:
    """Cast the operands of convolutions and matrix products to a type and back."""
    from onnx import TensorProto, helper

    rounded_type = TensorProto.DataType.Value(dtype.upper())
    nodes, rounded_names = list(proto.graph.node), dict[str, str]()
    del proto.graph.node[:]
    for node in nodes:
        for operand in range(2) if node.op_type in PRODUCTS else ():
            name = node.input[operand]
            if name not in rounded_names:
                cast, rounded_names[name] = (f"{name}.anole.{kind}" for kind in ("narrow", "rounded"))
                proto.graph.node.append(helper.make_node("Cast", [name], [cast], to=rounded_type))
                proto.graph.node.append(helper.make_node("Cast", [cast], [rounded_names[name]], to=TensorProto.FLOAT))
            node.input[operand] = rounded_names[name]
        proto.graph.node.append(node)


def _round_weights(proto: onnx.ModelProto, model: ModelSpec, target: Target) -> None:
    """Round the weights of the dense layers in a model's file, which contains them all."""
    from onnx import helper, numpy_helper, shape_inference

    from anole.extract.onnx.dimensions import fix_inputs, input_infos

    fix_inputs(proto, input_infos(model, proto))
    infos = [*proto.graph.input, *shape_inference.infer_shapes(proto).graph.value_info]
    shapes = {info.name: [extent.dim_value for extent in info.type.tensor_type.shape.dim] for info in infos}
    weights: Mapping[str, onnx.TensorProto] = {weight.name: weight for weight in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type not in ("Gemm", "MatMul") or node.input[1] not in weights:
            continue
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        values, shape = numpy_helper.to_array(weights[node.input[1]]), shapes.get(node.input[0], [])
        if values.ndim != 2 or values.dtype != np.float32:
            continue
        is_transposed = bool(attributes.get("transB", 0))
        rows = prod(shape[1:] if attributes.get("transA", 0) else shape[:-1])
        rounded = quantize_for_target(target, max(rows, 1), values.T if is_transposed else values)
        name = f"{node.input[1]}.anole.rounded.{rows}"
        tensor = numpy_helper.from_array(np.ascontiguousarray(rounded.T if is_transposed else rounded), name)
        if name not in weights:
            proto.graph.initializer.append(tensor)
            weights = {**weights, name: tensor}
        node.input[1] = name


_FUSED_OPERATORS = (*PRODUCTS, "QuantizeLinear")


@contextmanager
def unfused_engine(model: ModelSpec, inputs: Sequence[NDArray[Any]], threads: int) -> Iterator[Engine]:
    """Yield ONNX Runtime on a file in which only products are fused with the dequantization of their operands.

    Raises:
        ExtractError: the model cannot be loaded.
        BuildError: ONNX Runtime cannot load the file.
    """
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "defined.onnx")
        path.write_bytes(_unfused_file(model))
        yield onnxruntime_engine(path, inputs, threads)


def _unfused_file(model: ModelSpec) -> bytes:
    """Return the file with a unary `Sum`, which prevents fusion, between `DequantizeLinear` and other operators."""
    from onnx import helper

    from anole.extract.onnx.importer import read_onnx

    proto = read_onnx(model)
    nodes = list(proto.graph.node)
    dequantized = {node.output[0] for node in nodes if node.op_type == "DequantizeLinear"}
    del proto.graph.node[:]
    for node in nodes:
        for operand, name in enumerate(node.input if node.op_type not in _FUSED_OPERATORS else ()):
            if name in dequantized:
                node.input[operand] = f"{name}.anole.{len(proto.graph.node)}"
                proto.graph.node.append(helper.make_node("Sum", [name], [node.input[operand]]))
        proto.graph.node.append(node)
    return bytes(proto.SerializeToString())
