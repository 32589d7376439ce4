"""The loss from quantization: the signal-to-noise ratio (SQNR) of a network's results and of its 8-bit layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from anole.evaluate.engines import onnxruntime_session
from anole.quantize.operators import PRODUCTS

Sample = dict[str, NDArray[Any]]
"""Inputs by name."""

_MAX_DB = 200.0
"""The SQNR reported for results without noise."""


@dataclass(frozen=True)
class LayerLoss:
    """The loss of an 8-bit convolution or matrix product.

    Attributes:
        name: the operator's name in the float32 file.
        sqnr_db: the SQNR of its result, including noise from earlier layers.
        lost_db: the SQNR of its input data minus the SQNR of its result.
    """

    name: str
    operator: str
    sqnr_db: float
    lost_db: float


@dataclass(frozen=True)
class Loss:
    """The loss of a network: the minimum SQNR of its results, and its 8-bit layers in execution order."""

    sqnr_db: float
    layers: tuple[LayerLoss, ...]


def measure_loss(exact: onnx.ModelProto, quantized: onnx.ModelProto, samples: Sequence[Sample]) -> Loss:
    """Compare a quantized file with its float32 original, sample by sample."""
    nodes = {name: node for node in quantized.graph.node for name in node.output}
    exact_names = {name for node in exact.graph.node for name in node.output} | set(samples[0])
    outputs = [value.name for value in exact.graph.output]
    pairs = {name: name for name in outputs}
    layer_nodes: list[tuple[onnx.NodeProto, str | None, str]] = []
    for node in quantized.graph.node:
        is_quantized = node.op_type in PRODUCTS and _is_weight(nodes, node.input[1])
        source = _find_original(nodes, node.input[0]) if is_quantized else None
        result = node.output[0].removesuffix("_QuantizeLinear_Input")
        if source in exact_names and result in exact_names:
            pairs |= {source: node.input[0], result: _dequantized_copy(quantized, node.output[0])}
            layer_nodes.append((node, source, result))
    ratios = _ratios(exact, quantized, pairs, samples)
    layers = tuple(
        LayerLoss(node.name, node.op_type, ratios[result], ratios[source] - ratios[result])
        for node, source, result in layer_nodes
        if source is not None
    )
    return Loss(min(ratios[name] for name in outputs), layers)


def _is_weight(nodes: dict[str, onnx.NodeProto], name: str) -> bool:
    """Whether a value is a dequantized constant."""
    return name in nodes and nodes[name].op_type == "DequantizeLinear" and nodes[name].input[0] not in nodes


def _find_original(nodes: dict[str, onnx.NodeProto], name: str) -> str | None:
    """Return the original of a quantized and dequantized value, or None for other values."""
    for operator in ("DequantizeLinear", "QuantizeLinear"):
        if name not in nodes or nodes[name].op_type != operator:
            return None
        name = nodes[name].input[0]
    return name.removesuffix("_QuantizeLinear_Input")


def _dequantized_copy(model: onnx.ModelProto, name: str) -> str:
    """Return the quantized and dequantized copy of a value, or the value itself if there is no copy."""
    for operator in ("QuantizeLinear", "DequantizeLinear"):
        consumer = next((node for node in model.graph.node if node.op_type == operator and node.input[0] == name), None)
        if consumer is None:
            return name
        name = consumer.output[0]
    return name


def _ratios(
    exact: onnx.ModelProto, quantized: onnx.ModelProto, pairs: dict[str, str], samples: Sequence[Sample]
) -> dict[str, float]:
    """Return the ratio, in decibels, of each value of the exact file to the error of its counterpart."""
    signal, noise = np.zeros(len(pairs)), np.zeros(len(pairs))
    expected, actual = _ValueSession(exact, list(pairs)), _ValueSession(quantized, list(pairs.values()))
    for sample in samples:
        for index, (value, approx) in enumerate(zip(expected.compute(sample), actual.compute(sample), strict=True)):
            signal[index] += np.square(value, dtype=np.float64).sum()
            noise[index] += np.square(value - approx, dtype=np.float64).sum()
    return {name: _to_db(*powers) for name, *powers in zip(pairs, signal, noise, strict=True)}


class _ValueSession:
    """A session that computes intermediate values of a file by name; some of the names may be inputs."""

    def __init__(self, model: onnx.ModelProto, names: Sequence[str]) -> None:
        self._names, inputs = names, {value.name for value in model.graph.input}
        self._computed = [name for name in dict.fromkeys(names) if name not in inputs]
        self._session = onnxruntime_session(_with_outputs(model, self._computed), 0, joins=False)

    def compute(self, sample: Sample) -> list[NDArray[Any]]:
        """Return the values for a sample."""
        values = sample | dict(zip(self._computed, self._session.run(self._computed, sample), strict=True))
        return [values[name] for name in self._names]


def _to_db(signal: float, noise: float) -> float:
    return min(10 * math.log10(signal / noise), _MAX_DB) if signal and noise else _MAX_DB if not noise else -_MAX_DB


def _with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> bytes:
    """Add intermediate values of a file to its outputs."""
    extended = onnx.ModelProto()
    extended.CopyFrom(model)
    output_names = {value.name for value in extended.graph.output}
    extended.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in output_names)
    return bytes(extended.SerializeToString())
