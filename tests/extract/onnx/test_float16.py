"""float16 models: layers are converted to float32; inputs and outputs stay float16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from anole.config.entries import ModelSpec
from anole.extract.graph import find_layers
from anole.extract.load import load_model
from anole.task import Conv2d
from kit.cases import run_model

from .models import model_of, reference


def test_a_float16_convolution(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weight = (rng.standard_normal((4, 3, 3, 3)) / 5).astype(np.float16)
    graph = """(float16[1,3,6,6] x) => (float16[1,4,4,4] c, float16[1,4,4,4] y) {
        c = Conv (x, w)
        e = Elu <alpha = 0.5> (c)
        s = Cast <to = 1> (e)
        y = Cast <to = 10> (s)
    }"""
    model = model_of(graph, w=weight)
    inputs = {"x": rng.standard_normal((1, 3, 6, 6)).astype(np.float16)}
    found = run_model(model, inputs, tmp_path / "net.onnx")
    imported = load_model(ModelSpec("net", f"onnx:{tmp_path / 'net.onnx'}", {}))
    assert [layer.workload for layer in find_layers(imported)] == [Conv2d(1, 6, 6, 3, 4, (3, 3))]
    assert [info.dtype for info in (*imported.inputs, *imported.outputs)] == ["float16"] * 3
    for mine, theirs in zip(found, reference(onnx.load(tmp_path / "net.onnx"), inputs), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine.astype(np.float32), theirs.astype(np.float32), rtol=4e-3, atol=4e-3)
