"""The normal form computes what the model computes, in the layouts that templates expect."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import ir, relax

from anole.declared.entries import ModelSpec
from anole.documents.build import TensorInfo
from anole.extract.load import load_model
from anole.extract.torch import example_inputs, make_network, run_network

SHAPES = {"residual": (1, 3, 16, 16), "branches": (1, 3, 12, 12), "joined": (3, 6), "varied": (2, 6, 11, 12)}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.examples(2)
def test_the_normal_form_computes_the_same(project: Path, name: str) -> None:
    model = ModelSpec(name, f"torch:tiny:{name}", {"x": SHAPES[name]})
    imported, arguments = load_model(model), example_inputs(model)
    expected = run_network(model, make_network(model), arguments)
    executable = tvm.compile(imported.module, tvm.target.Target({"kind": "llvm"}))
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(arguments["x"].numpy()))
    outputs = [found] if isinstance(found, tvm.runtime.Tensor) else list(found)
    for mine, theirs in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5)
    assert [info.shape for info in imported.outputs] == [tuple(tensor.shape) for tensor in expected]
    assert imported.inputs == (TensorInfo("x", SHAPES[name], "float32"),)


def test_batch_norms_are_folded_and_convolutions_are_channels_last(project: Path) -> None:
    imported = load_model(ModelSpec("net", "torch:tiny:residual", {"x": (1, 3, 16, 16)}))
    values = [binding.value for block in imported.module["main"].body.blocks for binding in block.bindings]
    calls = [value for value in values if isinstance(value, ir.Call)]
    assert not [call for call in calls if "batch_norm" in call.op.name]
    convolutions = [call for call in calls if call.op.name == "relax.nn.conv2d"]
    assert {(call.attrs.data_layout, call.attrs.kernel_layout) for call in convolutions} == {("NHWC", "HWIO")}
    assert all(isinstance(call.args[1], ir.GenericConst) for call in convolutions)


def test_clips_stand_in_the_layout_of_what_they_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clips.py").write_text(
        "from torch import nn\n\n"
        "def clips():\n"
        "    layers = [nn.Conv2d(3, 8, 3), nn.ReLU6(), nn.Conv2d(8, 8, 1), nn.Hardtanh(-1, 2), nn.Conv2d(8, 4, 1)]\n"
        "    return nn.Sequential(*layers, nn.ReLU6())\n"
    )
    monkeypatch.chdir(tmp_path)
    main = load_model(ModelSpec("clips", "torch:clips:clips", {"x": (1, 3, 8, 8)})).module["main"]
    names = [binding.value.op.name for block in main.body.blocks for binding in block.bindings]
    layer = ["relax.nn.conv2d", "relax.add", "relax.clip"]
    assert names == ["relax.permute_dims", *layer, *layer, *layer, "relax.permute_dims"]
