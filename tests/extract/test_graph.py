"""The normal form computes the same results as the model, in the layouts that templates expect."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import ir

from anole.config.entries import ModelSpec
from anole.documents.build import TensorInfo
from anole.extract.load import load_model
from anole.extract.torch import example_inputs, make_network, run_network
from anole.ir.convolutions import is_channels_last

from .conftest import Write
from .passes.building import calls, operators, outputs

SHAPES = {"residual": (1, 3, 16, 16), "branches": (1, 3, 12, 12), "joined": (3, 6), "varied": (2, 6, 11, 12)}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.examples(2)
def test_the_normal_form_computes_the_same(project: Path, name: str) -> None:
    model = ModelSpec(name, f"torch:tiny:{name}", {"x": SHAPES[name]})
    imported, arguments = load_model(model), example_inputs(model)
    expected = run_network(model, make_network(model), arguments)
    for mine, theirs in zip(outputs(imported.module, arguments["x"].numpy()), expected, strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-4, atol=1e-5)
    assert [info.shape for info in imported.outputs] == [tuple(tensor.shape) for tensor in expected]
    assert imported.inputs == (TensorInfo("x", SHAPES[name], "float32"),)


def test_batch_norms_are_folded_and_convolutions_are_channels_last(project: Path) -> None:
    imported = load_model(ModelSpec("net", "torch:tiny:residual", {"x": (1, 3, 16, 16)}))
    assert "batch_norm" not in operators(imported.module)
    convolutions = [call for call in calls(imported.module) if call.op.name == "relax.nn.conv2d"]
    assert convolutions and all(map(is_channels_last, convolutions))
    assert all(isinstance(call.args[1], ir.GenericConst) for call in convolutions)


def test_clips_keep_the_layout_of_their_operand(write: Write) -> None:
    layers = "nn.Conv2d(3, 8, 3), nn.ReLU6(), nn.Conv2d(8, 8, 1), nn.Hardtanh(-1, 2), nn.Conv2d(8, 4, 1), nn.ReLU6()"
    module = load_model(write(f"Net = lambda: nn.Sequential({layers})", 1, 3, 8, 8)).module
    layer = ["conv2d", "add", "clip"]
    assert operators(module) == ["permute_dims", *layer, *layer, *layer, "permute_dims"]
