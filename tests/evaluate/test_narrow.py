"""References that multiply bfloat16 differ from those that do not, and by no more than that explains."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx.version_converter
import pytest
import torch

from anole.declared.entries import ModelSpec
from anole.evaluate.comparison import compare_outputs
from anole.evaluate.engines import export_onnx, reference_engines
from anole.evaluate.narrow import narrow_engine
from anole.extract.torch import make_network
from anole.targets.cpu.settings import describe_cpu

TINY = ModelSpec("net", "torch:tiny:residual", {"x": (1, 3, 16, 16)})


@pytest.mark.parametrize("scheme", ["torch", "onnx", "old onnx"])
def test_a_narrow_reference_is_near_the_plain_one(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(Path(__file__).parents[1] / "tiny_networks.py", tmp_path / "tiny.py")
    monkeypatch.chdir(tmp_path)
    model = TINY
    samples = [[np.random.default_rng(seed).standard_normal((1, 3, 16, 16), dtype=np.float32)] for seed in range(3)]
    if scheme != "torch":
        export_onnx(make_network(TINY), (torch.from_numpy(samples[0][0]),), tmp_path / "net.onnx")
        if scheme == "old onnx":
            file = onnx.load("net.onnx")
            onnx.save(onnx.version_converter.convert_version(file, 11), "net.onnx")
        model = ModelSpec("net", "onnx:net.onnx", {})
    bf16 = {**describe_cpu(threads=1), "precision": "bf16"}
    with reference_engines(model, samples[0], 1) as plain, narrow_engine(model, bf16, samples[0], 1) as narrow:
        found = compare_outputs(narrow.compute_each(samples), plain[0].compute_each(samples))
    assert 1e-4 < found.error < 5e-2
