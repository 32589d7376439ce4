"""What TVM's importer lacks or gets wrong is said in other words, which mean the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from anole.extract import load_model
from anole.extract.converters import nearest_places
from anole.extract.torch import example_inputs, make_network, run_network
from anole.spec import ModelSpec

SOURCE = """
import torch
from torch.nn import functional as F

class Net(torch.nn.Module):
    def forward(self, x):
        return {expression}
"""


def check(folder: Path, monkeypatch: pytest.MonkeyPatch, expression: str, shape: tuple[int, ...]) -> None:
    (folder / "worded.py").write_text(SOURCE.format(expression=expression))
    monkeypatch.chdir(folder)
    model = ModelSpec("net", "torch:worded:Net", {"x": shape})
    arguments = example_inputs(model)
    executable = tvm.compile(load_model(model).module, tvm.target.Target("llvm"))
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.from_dlpack(arguments["x"]))
    (expected,) = run_network(model, make_network(model), arguments)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "expression",
    [
        "F.selu(x)",
        "F.elu(x, 0.3)",
        "F.celu(x, 0.3)",
        "torch.add(x, x.flip(0), alpha=0.5)",
        "torch.sub(x, x.flip(0), alpha=2)",
        "torch.rsub(x, 2.0, alpha=3)",
        "1 - x",
        "F.group_norm(x, 3)",
        "F.group_norm(x, 3, torch.arange(6.0))",
        "F.adaptive_max_pool2d(x, 1)",
        "F.adaptive_max_pool2d(x, (4, 2))",
        "x.amax((2, -1))",
        "x.amin(1, keepdim=True)",
        "x + x.amax()",
        "torch.logsumexp(x, 1)",
        "F.interpolate(x, size=(13, 25))",
        "F.interpolate(x, size=(5, 3))",
        "F.interpolate(x, scale_factor=(2, 3))",
        "F.interpolate(x, scale_factor=1.7)",
    ],
)
def test_it_computes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expression: str) -> None:
    check(tmp_path, monkeypatch, expression, (2, 6, 8, 10))


along_a_side = st.one_of(
    st.tuples(st.integers(1, 500), st.none()),
    st.tuples(st.none(), st.floats(0.3, 5.0).map(lambda factor: round(factor, 2))),
)


@settings(deadline=None)
@given(st.integers(4, 200), along_a_side)
def test_the_nearest_is_the_one_that_torch_takes(inputs: int, asked: tuple[int | None, float | None]) -> None:
    size, factor = asked
    data = torch.arange(float(inputs)).view(1, 1, inputs, 1)
    expected = torch.nn.functional.interpolate(
        data, size=size and (size, 1), scale_factor=factor and (factor, 1.0)
    ).flatten()
    found = nearest_places(inputs, len(expected), factor)
    np.testing.assert_array_equal(found, expected.long().numpy())
