"""A reference that computes a quantized ONNX file without fusing operators, except integer products.

ONNX Runtime also fuses other operators with the quantization of their results, and some of these, such as the addition
of two tensors with different scales, round differently. In a deep network, one rounding difference causes many more in
later layers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from anole.config.entries import ModelSpec
from anole.evaluate.engines import Engine, onnxruntime_engine
from anole.evaluate.low_precision import PRODUCTS

_FUSED = (*PRODUCTS, "QuantizeLinear")


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

    file = read_onnx(model)
    nodes = list(file.graph.node)
    dequantized = {node.output[0] for node in nodes if node.op_type == "DequantizeLinear"}
    del file.graph.node[:]
    for node in nodes:
        for operand, name in enumerate(node.input if node.op_type not in _FUSED else ()):
            if name in dequantized:
                node.input[operand] = f"{name}.anole.{len(file.graph.node)}"
                file.graph.node.append(helper.make_node("Sum", [name], [node.input[operand]]))
        file.graph.node.append(node)
    return bytes(file.SerializeToString())
