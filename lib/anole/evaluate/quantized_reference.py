"""A reference that computes a quantized ONNX file as the file defines it, where only products are of whole numbers.

ONNX Runtime also joins other operators with the steps that quantize their results, and rounds some of them in another
way: its sum of two scales, for example. In a deep network, one number that is rounded otherwise changes many behind it.
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

_JOINED = (*PRODUCTS, "QuantizeLinear")


@contextmanager
def defined_engine(model: ModelSpec, inputs: Sequence[NDArray[Any]], threads: int) -> Iterator[Engine]:
    """Yield ONNX Runtime on a file in which nothing but products is joined with what dequantizes its operands.

    Raises:
        ExtractError: the model cannot be loaded.
        BuildError: ONNX Runtime cannot load the file.
    """
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "defined.onnx")
        path.write_bytes(_apart(model))
        yield onnxruntime_engine(path, inputs, threads)


def _apart(model: ModelSpec) -> bytes:
    """Return a file whose operators read what was dequantized through a sum of one number, if they are no products."""
    from onnx import helper

    from anole.extract.onnx.importer import read_onnx

    file = read_onnx(model)
    nodes = list(file.graph.node)
    dequantized = {node.output[0] for node in nodes if node.op_type == "DequantizeLinear"}
    del file.graph.node[:]
    for node in nodes:
        for place, name in enumerate(node.input if node.op_type not in _JOINED else ()):
            if name in dequantized:
                node.input[place] = f"{name}.anole.{len(file.graph.node)}"
                file.graph.node.append(helper.make_node("Sum", [name], [node.input[place]]))
        file.graph.node.append(node)
    return bytes(file.SerializeToString())
