"""Published networks, built for an emulated GPU by the entire workflow, match torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kit.emulated_gpu.machine import build_environment, why_unavailable

pytestmark = [
    pytest.mark.workflow,
    pytest.mark.slow,
    pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable())),
]

ENCODER = """
from torch import nn


def encoder():
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
"""


@pytest.fixture
def project(empty_project: Callable[[str], Any]) -> Any:
    made = empty_project("emulated")
    made.variables = {name: value for name, value in build_environment().items() if name != "PYTHONPATH"}
    (made.folder / "transformer.py").write_text(ENCODER)
    return made


@pytest.mark.parametrize(
    ("source", "shape"),
    [("torchvision:resnet18", [1, 3, 32, 32]), ("torch:transformer:encoder", [1, 16, 64])],
    ids=["ResNet-18", "a Transformer's encoder"],
)
def test_an_entire_network_is_correct(project: Any, source: str, shape: list[int]) -> None:
    project.write(
        {"net": {"source": source, "inputs": {"x": shape}}},
        targets={"gpu": {"kind": "cuda"}},
        tuning={"preset": "random", "total_trials": 12, "evaluator": {"number": 1, "repeats": 2}, "n_confirm": 0},
        builds=[{"model": "net", "target": "gpu"}],
    )
    project.complete(limit_s=900.0)
    ((error,),) = project.query("select max(relative_error) from evaluation")
    assert 0 < error < 1e-5
    ran = dict(project.query("select status, count(*) from trial group by status"))
    # An emulated GPU may take too long for a slow candidate.
    assert ran["ok"] + ran.get("run_timeout", 0) == 12
