"""A reference that multiplies bfloat16; how far that takes it from itself tells how far it may take a build."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from anole.declared.entries import ModelSpec
from anole.evaluate.engines import Engine, onnxruntime_engine, torch_engine, torch_network

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""The operators of ONNX that multiply matrices or images."""


@contextmanager
def narrow_engine(model: ModelSpec, inputs: Sequence[NDArray[Any]], threads: int) -> Iterator[Engine]:
    """Yields torch's automatic bfloat16, or ONNX Runtime on a file whose products read numbers rounded to bfloat16.

    Raises:
        ExtractError: the model cannot be loaded.
        BuildError: ONNX Runtime cannot load the file.
    """
    if model.scheme != "onnx":
        yield _torch(model, inputs, threads)
        return
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "narrow.onnx")
        path.write_bytes(_with_rounded_products(model))
        yield onnxruntime_engine(path, inputs, threads)


def _torch(model: ModelSpec, inputs: Sequence[NDArray[Any]], threads: int) -> Engine:
    import torch

    network, arguments = torch_network(model, inputs, threads)
    engine = torch_engine(network, arguments)

    def run() -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return engine.run()

    def outputs(found: Any) -> list[NDArray[Any]]:
        from anole.extract.torch import tensors_of

        return [(each.float() if each.dtype is torch.bfloat16 else each).numpy() for each in tensors_of(found)]

    return replace(engine, run=run, outputs=outputs)


def _with_rounded_products(model: ModelSpec) -> bytes:
    """Returns a model's file, with its weights inside, in which products read what was rounded to bfloat16 and back."""
    from onnx import TensorProto, helper

    from anole.extract.onnx.importer import read_onnx

    file = read_onnx(model)
    nodes, rounded = list(file.graph.node), dict[str, str]()
    del file.graph.node[:]
    for node in nodes:
        for place in range(2) if node.op_type in PRODUCTS else ():
            name = node.input[place]
            if name not in rounded:
                narrow, rounded[name] = (f"{name}.anole.{kind}" for kind in ("narrow", "rounded"))
                file.graph.node.append(helper.make_node("Cast", [name], [narrow], to=TensorProto.BFLOAT16))
                file.graph.node.append(helper.make_node("Cast", [narrow], [rounded[name]], to=TensorProto.FLOAT))
            node.input[place] = rounded[name]
        file.graph.node.append(node)
    return bytes(file.SerializeToString())
