"""Import of ONNX files, and errors for invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from anole.config.entries import ModelSpec
from anole.errors import ExtractError
from anole.extract.graph import find_layers
from anole.extract.load import load_model
from anole.task import Conv2d, Dense

from ..passes.building import run
from .models import model_of, reference


def write(batch: int | str = 1, last: str = "Relu") -> None:
    """Write a model: a convolution, a transposed convolution, Flatten, Gemm and one more operator."""
    rng = np.random.default_rng(0)
    weights = {
        "conv_weight": rng.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "conv_bias": rng.standard_normal(8).astype(np.float32),
        "up_weight": rng.standard_normal((8, 4, 2, 2)).astype(np.float32),
        "fc_weight": rng.standard_normal((5, 4 * 196)).astype(np.float32),
        "fc_bias": rng.standard_normal(5).astype(np.float32),
    }
    graph = f"""(float[{batch},3,9,9] image) => (float[] scores) {{
        [conv] c = Conv (image, conv_weight, conv_bias)
        [up] u = ConvTranspose <strides = [2, 2]> (c, up_weight)
        [flatten] flat = Flatten (u)
        [fc] g = Gemm <transB = 1> (flat, fc_weight, fc_bias)
        [last] scores = {last} (g)
    }}"""
    onnx.save(model_of(graph, **weights), "net.onnx")


@pytest.mark.parametrize("batch", [1, "batch"])
def test_names_of_a_file_are_kept(project: Path, batch: int | str) -> None:
    write(batch)
    fixed = {} if batch == 1 else {"image": (1, 3, 9, 9)}
    imported = load_model(ModelSpec("net", "onnx:net.onnx", fixed))
    layers = find_layers(imported)
    convolutions = [Conv2d(1, 9, 9, 3, 8, (3, 3)), Conv2d(1, 7, 7, 8, 16, (1, 1))]
    assert [layer.workload for layer in layers] == [*convolutions, Dense(1, 784, 5)]
    assert [layer.name for layer in layers] == ["conv", "up", "fc"]
    assert [info.name for info in (*imported.inputs, *imported.outputs)] == ["image", "scores"]
    image = np.random.default_rng(1).standard_normal((1, 3, 9, 9)).astype(np.float32)
    expected = reference("net.onnx", {"image": image})[0]
    np.testing.assert_allclose(run(imported.module, image), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "source", "inputs", "message"),
    [
        ({}, "onnx:nowhere.onnx", {}, "found no file nowhere.onnx"),
        (
            {"batch": "batch"},
            "onnx:net.onnx",
            {},
            "input image has the dynamic shape [batch, 3, 9, 9]; fix it in `inputs`, such as {image: [1, 3, 9, 9]}",
        ),
        ({"batch": "batch"}, "onnx:net.onnx", {"image": (1, 4, 9, 9)}, "found shape [1, 4, 9, 9]; the file has"),
        ({}, "onnx:net.onnx", {"x": (1, 3, 9, 9)}, "found 'x'; net.onnx has image"),
        ({"last": "RandomNormalLike"}, "onnx:net.onnx", {}, "RandomNormalLike 'last': there is no converter"),
        *(
            ({"keep": keep}, "onnx:net.onnx", {}, "net.onnx is not an ONNX file, or is damaged")
            for keep in (0, 40, 500)
        ),
    ],
)
def test_invalid_files_are_reported(
    project: Path, settings: dict[str, Any], source: str, inputs: dict[str, tuple[int, ...]], message: str
) -> None:
    keep = settings.pop("keep", None)
    write(**settings)
    Path("net.onnx").write_bytes(Path("net.onnx").read_bytes()[:keep])
    with pytest.raises(ExtractError) as caught:
        load_model(ModelSpec("net", source, inputs))
    assert message in str(caught.value) and "\n" not in str(caught.value)
