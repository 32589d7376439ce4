"""A model's outputs in double precision, for models whose single-precision references are not exact enough.

ONNX Runtime's `Sigmoid`, for example, is off by 1.2e-7 near zero, and the error of its `STFT` is large after a
logarithm. A correct build differs from such a reference, but not from the outputs in double precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.reference
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnx.reference.op_run import OpRun

from anole.config.entries import ModelSpec
from anole.errors import AnoleError, BuildError, cause
from anole.evaluate.engines import Arrays
from anole.extract.onnx.float16 import TYPE_ATTRIBUTES
from anole.extract.onnx.importer import read_onnx

_WIDENED_TYPES = (TensorProto.FLOAT, TensorProto.FLOAT16)


def compute_in_double(model: ModelSpec, samples: Sequence[Sequence[NDArray[Any]]]) -> list[Arrays]:
    """Return the outputs of a model for each sample, in double precision; it may take minutes.

    Torch models are computed by torch, and ONNX files by the onnx package's reference implementation.

    Raises:
        BuildError, ExtractError: the model cannot be computed in double precision, or cannot be loaded.
    """
    doubles = [[x.astype(np.float64) if x.dtype.kind == "f" else x.copy() for x in inputs] for inputs in samples]
    try:
        return _compute_by_onnx(model, doubles) if model.scheme == "onnx" else _compute_by_torch(model, doubles)
    except AnoleError:
        raise
    except Exception as error:
        raise BuildError(f"model {model.name} cannot be computed in double precision: {cause(error)}") from error


def _compute_by_torch(model: ModelSpec, samples: Sequence[Arrays]) -> list[Arrays]:
    import torch

    from anole.evaluate.torch_wrappers import ByName
    from anole.extract.torch import make_network, tensors_of

    network = ByName(model, make_network(model)).double()
    with torch.inference_mode():
        outputs = [network(*map(torch.from_numpy, inputs)) for inputs in samples]
    return [[tensor.numpy() for tensor in tensors_of(output)] for output in outputs]


def _compute_by_onnx(model: ModelSpec, samples: Sequence[Arrays]) -> list[Arrays]:
    proto = read_onnx(model)
    weights = {tensor.name for tensor in proto.graph.initializer}
    names = [value.name for value in proto.graph.input if value.name not in weights]
    _widen_graph(proto.graph)
    for function in proto.functions:
        _widen_nodes(function.node)
    evaluator = onnx.reference.ReferenceEvaluator(proto, new_ops=[BatchNormalization, MeanVarianceNormalization, STFT])
    with np.errstate(all="ignore"):
        results = [evaluator.run(None, dict(zip(names, inputs, strict=True))) for inputs in samples]
    return [list(map(np.asarray, outputs)) for outputs in results]


def _widen_graph(graph: onnx.GraphProto) -> None:
    """Cast all float32 and float16 tensors of a graph to float64, including subgraphs."""
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in _WIDENED_TYPES:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    del graph.value_info[:]
    _widen_nodes(graph.node)


def _widen_nodes(nodes: Sequence[onnx.NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            if attribute.name in TYPE_ATTRIBUTES and attribute.i in _WIDENED_TYPES:
                attribute.i = TensorProto.DOUBLE
            for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                _widen_graph(graph)


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _WIDENED_TYPES:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


class BatchNormalization(OpRun):  # type: ignore[misc]
    """Batch normalization with the given statistics; before opset 14, the package uses the data's statistics."""

    def _run(
        self, x: NDArray[Any], *channels: NDArray[Any], epsilon: float | None = None, training_mode: int = 0, **_: Any
    ) -> tuple[NDArray[Any]]:
        if training_mode:
            raise NotImplementedError("training")
        scale, bias, mean, variance = (parameter.reshape(1, -1, *[1] * (x.ndim - 2)) for parameter in channels)
        factor = scale / np.sqrt(variance + (1e-5 if epsilon is None else epsilon))
        return ((x - mean) * factor + bias,)


class MeanVarianceNormalization(OpRun):  # type: ignore[misc]
    """Normalization with the data's statistics, in any precision; the package's version supports only float32."""

    def _run(self, x: NDArray[Any], axes: Sequence[int] | None = None) -> tuple[NDArray[Any]]:
        axes = (0, 2, 3) if axes is None else tuple(axes)
        centered = x - x.mean(axes, keepdims=True)
        return (centered / (np.sqrt((centered**2).mean(axes, keepdims=True)) + 1e-9),)


class STFT(OpRun):  # type: ignore[misc]
    """Short-time Fourier transform of real signals; the package rejects signals without a last axis of size 1."""

    def _run(
        self,
        signal: NDArray[Any],
        step: NDArray[Any],
        window: NDArray[Any] | None = None,
        length: NDArray[Any] | None = None,
        onesided: int | None = None,
        **_: Any,
    ) -> tuple[NDArray[Any]]:
        if signal.ndim == 3 and signal.shape[2] != 1:
            raise NotImplementedError("complex signals")
        real = signal.reshape(len(signal), -1)
        size = int(length) if length is not None else len(window) if window is not None else real.shape[1]
        frames = np.lib.stride_tricks.sliding_window_view(real, size, axis=1)[:, :: int(step)]
        transform = np.fft.fft if onesided == 0 else np.fft.rfft
        spectrum = transform(frames if window is None else frames * window)
        return (np.stack([spectrum.real, spectrum.imag], -1).astype(signal.dtype),)
