"""The sizes of tables that integer inputs index."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from anole.config.entries import ModelSpec
from anole.extract.load import load_model
from anole.extract.samples import random_input


@pytest.mark.parametrize(
    ("nodes", "size"),
    [
        ("y = Gather(words, i)", 30),
        ("y = Gather <axis = 1> (words, i)", 2),
        ("j = Cast<to = 6>(i) k = Transpose(j) z = Gather(words, k) y = Relu(z)", 30),
        ("a = Gather(words, i) b = Gather(kinds, i) y = Add(a, b)", 12),
        ("a = Gather(words, i) c = Equal(i, one) d = Cast<to = 1>(c) e = Unsqueeze(d, last) y = Add(a, e)", 30),
        ("j = Add(i, one) y = Gather(words, j)", None),
        ("a = Gather(words, i) j = Mul(i, i) b = Gather(words, j) y = Add(a, b)", None),
        ("y = Cast<to = 1>(i)", None),
    ],
)
def test_inputs_are_sampled_from_the_smallest_indexed_table(nodes: str, size: int | None, tmp_path: Path) -> None:
    tables = (f"float[{n}, 2] {name} = {{{'0.5, ' * (2 * n - 1)}0.5}}" for name, n in (("words", 30), ("kinds", 12)))
    constants = f"{', '.join(tables)}, int64 one = {{1}}, int64[1] last = {{-1}}"
    net = f"net (int64[3, 50] i) => (float[N, M, K] y) <{constants}> {{ {nodes} }}"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {net}')
    onnx.save(model, tmp_path / "net.onnx")
    (info,) = load_model(ModelSpec("net", f"onnx:{tmp_path}/net.onnx")).inputs
    assert info.indexed == size
    values = set(random_input(info, np.random.default_rng(0), info.shape).ravel().tolist())
    assert values <= set(range(size or 2)) and len(values) > (size or 2) / 2
