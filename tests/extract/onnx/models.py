"""ONNX models that tests make of operators, and what is computed by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from anole.evaluate.engines import onnxruntime_session


def value(name: str, shape: Sequence[int | str | None] | None = None, dtype: str = "float32") -> ValueInfoProto:
    """Returns the declaration of an input, output or other value."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def model_of(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    *,
    opset: int = 17,
    domains: Sequence[str] = (),
    **weights: Any,
) -> ModelProto:
    """Returns a model, with version 1 of other domains than ONNX's."""
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9 if opset < 22 else 11)


def reference(model: ModelProto | str, inputs: Any) -> list[NDArray[Any]]:
    """Returns what ONNX Runtime computes by a model or file."""
    session = onnxruntime_session(model if isinstance(model, str) else model.SerializeToString(), 1)
    return [np.asarray(each) for each in session.run(None, dict(inputs))]
