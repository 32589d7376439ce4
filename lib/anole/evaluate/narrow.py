"""A reference that rounds as a target does; how far that takes it from itself tells how far it may take a build."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from anole.config.entries import ModelSpec
from anole.evaluate.engines import Engine, onnxruntime_engine, torch_engine, torch_network
from anole.targets import get_target

if TYPE_CHECKING:
    import onnx

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""The operators of ONNX that multiply matrices or images."""

_LEAST_OPSET = 13
"""The first one whose `Cast` knows bfloat16."""


def multiplies_bfloat16(description: Mapping[str, Any]) -> bool:
    """Returns whether a described target rounds to bfloat16; with int8, the model itself is a quantised one."""
    return description.get("precision") == "bf16"


@contextmanager
def narrow_engine(
    model: ModelSpec, description: Mapping[str, Any], inputs: Sequence[NDArray[Any]], threads: int
) -> Iterator[Engine]:
    """Yields torch, or ONNX Runtime on a changed file, with weights rounded as a described target stores them.

    If the target multiplies bfloat16, torch does so by itself, and products of the file read numbers rounded to that.

    Raises:
        ExtractError: the model cannot be loaded.
        BuildError: ONNX Runtime cannot load the file.
    """
    if model.scheme != "onnx":
        yield _torch(model, description, inputs, threads)
        return
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "narrow.onnx")
        path.write_bytes(_rounded_file(model, description))
        yield onnxruntime_engine(path, inputs, threads)


def _torch(model: ModelSpec, description: Mapping[str, Any], inputs: Sequence[NDArray[Any]], threads: int) -> Engine:
    import torch

    from anole.evaluate.rounded_weights import RoundedWeights

    network, arguments = torch_network(model, inputs, threads)
    engine = torch_engine(network, arguments)

    def run() -> Any:
        with ExitStack() as stack:
            if multiplies_bfloat16(description):
                stack.enter_context(torch.autocast("cpu", torch.bfloat16))
            if "weights" in description:
                stack.enter_context(RoundedWeights(network, get_target(description)))
            return engine.run()

    def outputs(found: Any) -> list[NDArray[Any]]:
        from anole.extract.torch import tensors_of

        return [(each.float() if each.dtype is torch.bfloat16 else each).numpy() for each in tensors_of(found)]

    return replace(engine, run=run, outputs=outputs)


def _rounded_file(model: ModelSpec, description: Mapping[str, Any]) -> bytes:
    """Returns a model's file, with its weights inside, that rounds as a target does."""
    from anole.evaluate.rounded_weights import round_weights
    from anole.extract.onnx.graphs import of_opset
    from anole.extract.onnx.importer import read_onnx

    file = of_opset(read_onnx(model), _LEAST_OPSET)
    if multiplies_bfloat16(description):
        _round_products(file)
    if "weights" in description:
        round_weights(file, model, get_target(description))
    return bytes(file.SerializeToString())


def _round_products(file: onnx.ModelProto) -> None:
    """Lets products read what was rounded to bfloat16 and back."""
    from onnx import TensorProto, helper

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
