"""A model's outputs in double precision, which decide where a reference in single precision is too inexact itself.

ONNX Runtime's `Sigmoid`, for example, is off by 1.2e-7 wherever it is near zero, and its `STFT` by more than what a
logarithm behind it forgives. A build that is right differs from such a reference, and not from this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anole.errors import AnoleError, BuildError, cause

if TYPE_CHECKING:
    import onnx

    from anole.declared.entries import ModelSpec

Arrays = list[NDArray[Any]]


def compute_in_double(model: ModelSpec, samples: Sequence[Sequence[NDArray[Any]]]) -> list[Arrays]:
    """Returns the outputs of a model on each of several inputs, which may take minutes.

    Torch models are computed by torch, and ONNX files by the onnx package's reference implementation.

    Args:
        model: the network.
        samples: the inputs, in the types that the model has.

    Raises:
        BuildError: the model cannot be computed in double precision.
    """
    wide = [[_widened(array) for array in inputs] for inputs in samples]
    try:
        return _by_onnx(model, wide) if model.scheme == "onnx" else _by_torch(model, wide)
    except AnoleError:
        raise
    except Exception as error:
        raise BuildError(f"model {model.name} cannot be computed in double precision: {cause(error)}") from error


def _widened(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _by_torch(model: ModelSpec, samples: Sequence[Sequence[NDArray[Any]]]) -> list[Arrays]:
    import torch

    from anole.extract.torch import make_network, tensors_of

    network = make_network(model).double()
    with torch.inference_mode():
        outputs = [network(*map(torch.from_numpy, inputs)) for inputs in samples]
    return [[tensor.numpy() for tensor in tensors_of(output)] for output in outputs]


def _by_onnx(model: ModelSpec, samples: Sequence[Sequence[NDArray[Any]]]) -> list[Arrays]:
    import onnx.reference

    from anole.evaluate.onnx_operators import OPERATORS
    from anole.extract.onnx.importer import read_onnx

    proto = read_onnx(model)
    weights = {tensor.name for tensor in proto.graph.initializer}
    names = [value.name for value in proto.graph.input if value.name not in weights]
    evaluator = onnx.reference.ReferenceEvaluator(in_double(proto), new_ops=list(OPERATORS))
    with np.errstate(all="ignore"):
        found = [evaluator.run(None, dict(zip(names, inputs, strict=True))) for inputs in samples]
    return [list(map(np.asarray, outputs)) for outputs in found]


def in_double(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a model whose float32 and float16 numbers are float64, also within subgraphs and functions.

    Args:
        proto: the model with its weights; it is changed.
    """
    _widen_graph(proto.graph)
    for function in proto.functions:
        _widen_nodes(function.node)
    return proto


def _widen_graph(graph: onnx.GraphProto) -> None:
    from onnx import TensorProto

    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in (TensorProto.FLOAT, TensorProto.FLOAT16):
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    del graph.value_info[:]
    _widen_nodes(graph.node)


def _widen_nodes(nodes: Sequence[onnx.NodeProto]) -> None:
    from onnx import TensorProto

    from anole.extract.onnx.halves import TYPE_ATTRIBUTES

    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            if attribute.name in TYPE_ATTRIBUTES and attribute.i in (TensorProto.FLOAT, TensorProto.FLOAT16):
                attribute.i = TensorProto.DOUBLE
            for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                _widen_graph(graph)


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    from onnx import TensorProto, numpy_helper

    if tensor.data_type in (TensorProto.FLOAT, TensorProto.FLOAT16):
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
