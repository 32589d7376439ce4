"""A Transformer's layer, from torch and from its ONNX export, is right by default configs, and wholly scheduled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from tvm import relax

from anole.declared.entries import ModelSpec
from anole.extract.graph import find_layers
from anole.extract.load import load_model
from anole.extract.torch import example_inputs, make_network, run_network
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.task import BatchMatmul, Dense

from .conftest import functions, lowered

TARGET = get_target({**describe_cpu(), "threads": 2})
WORKLOADS = [
    Dense(32, 32, 96),
    BatchMatmul(8, 16, 8, 16, transpose_right=True),
    BatchMatmul(8, 16, 16, 8),
    Dense(32, 32, 32),
    Dense(32, 32, 64),
    Dense(32, 64, 32),
]


def exported(model: ModelSpec) -> ModelSpec:
    """The same network as an ONNX file in the working directory."""
    arguments = tuple(example_inputs(model).values())
    torch.onnx.export(make_network(model), arguments, "net.onnx", input_names=["x"], dynamo=True, verbose=False)
    return ModelSpec(model.name, "onnx:net.onnx", {})


@pytest.mark.parametrize("source", ["torch", pytest.param("onnx", marks=pytest.mark.guard)])
@pytest.mark.parametrize("order", ["norm_last", pytest.param("norm_first", marks=pytest.mark.guard)])
def test_an_encoder_layer_is_right(project: Path, order: str, source: str) -> None:
    model = ModelSpec("net", f"torch:tiny:{order}", {"x": (2, 16, 32)})
    arguments = example_inputs(model)
    (expected,) = run_network(model, make_network(model), arguments)
    imported = load_model(model if source == "torch" else exported(model))
    assert [layer.workload for layer in find_layers(imported)] == WORKLOADS
    module = lowered(imported, TARGET)
    executable = tvm.compile(module, TARGET.compiler_target(), tir_pipeline=TARGET.compiler_pipeline())
    main = relax.VirtualMachine(executable, tvm.cpu())["main"]
    found = main(tvm.runtime.tensor(arguments["x"].numpy()))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.guard
def test_a_large_encoder_layer_is_fused_parallel_and_vectorised(project: Path) -> None:
    (project / "large.py").write_text(
        "from torch import nn\n\n"
        "def encoder():\n"
        "    return nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, activation='gelu')\n"
    )
    imported = load_model(ModelSpec("net", "torch:large:encoder", {"x": (1, 128, 512)}))
    scripts = {name: func.script() for name, func in functions(lowered(imported, TARGET)).items()}
    serial = [name for name, text in scripts.items() if "T.parallel(" not in text or "T.vectorized(" not in text]
    assert not serial
    # Scale and activation belong to the products.
    epilogues = sorted(name for name in scripts if "gelu" in name or "multiply" in name)
    assert [name.split("_")[1] for name in epilogues] == ["batch", "dense2"]
