"""Helpers to write ONNX models as text and run them with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, ValueInfoProto, helper, numpy_helper

from anole.evaluate.engines import onnxruntime_session


def value(name: str, shape: Sequence[int | str | None] | None = None, dtype: str = "float32") -> ValueInfoProto:
    """Declare an input, output or other value."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def model_of(graph: str | GraphProto, opset: int = 17, domains: Sequence[str] = (), **weights: Any) -> ModelProto:
    """Build the model of a graph, such as ``(float[n,4] x) => (float[] y) {[name] y = Mul (x, weight)}``."""
    graph = onnx.parser.parse_graph(f"net {graph}") if isinstance(graph, str) else graph
    graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items())
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9 if opset < 22 else 11)


def reference(model: ModelProto | str, inputs: Any) -> list[NDArray[Any]]:
    """Run a model or file with ONNX Runtime."""
    session = onnxruntime_session(model if isinstance(model, str) else model.SerializeToString(), 1)
    return [np.asarray(each) for each in session.run(None, dict(inputs))]
