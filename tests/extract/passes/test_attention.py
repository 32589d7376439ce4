"""Attention becomes one operator, however a network spells it, and the compiled network matches torch."""

from __future__ import annotations

import numpy as np
import pytest

from anole.config.entries import ModelSpec
from anole.extract.graph import find_layers, for_target
from anole.extract.load import load_model
from anole.extract.torch import example_inputs, make_network, run_network
from anole.ir.mutators import bindings, operator_of
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.task import BatchMatmul
from anole_cuda.settings import describe_cuda
from kit.cases import compute

from ..conftest import Write
from .building import assert_same_as_torch

CPU = get_target(describe_cpu(threads=1))

HEADER = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(24, 72)
        self.bias = nn.Parameter(torch.randn(2, 9, 9))
        self.windows = nn.Parameter(torch.randn(3, 9, 9).sign() * 20)
        self.heads = nn.MultiheadAttention(24, 2, batch_first=True)
        lower = torch.ones(9, 9).tril().bool()
        self.register_buffer("holed", lower * (torch.arange(9) != 3)[:, None])

    def split(self, x):
        return self.qkv(x).reshape(-1, 9, 3, 2, 12).permute(2, 0, 3, 1, 4)

    def forward(self, x):
        q, k, v = self.split(x)
"""
"""Networks on x of shape (3, 9, 24); q, k and v have the shape (3, 2, 9, 12)."""


def source(body: str) -> str:
    return HEADER + "".join(f"        {line}\n" for line in body.split("; "))


FUSED = {
    "operator": ("return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(3, 9, 24)", "6x 9x12x9x12"),
    "mask": ("return F.scaled_dot_product_attention(q, k, v, self.holed[4:5])", "6x 9x12x9x12 +1 masked"),
    "causal": ("return F.scaled_dot_product_attention(q, k, v, is_causal=True)", "6x 9x12x9x12 +1"),
    "rows without a key": ("return F.scaled_dot_product_attention(q, k, v, self.holed)", "6x 9x12x9x12 +1 masked"),
    "grouped queries": (
        "return F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True)",
        "6x 9x12x9x12",
    ),
    "scale": ("return F.scaled_dot_product_attention(q, k, v, self.bias, scale=0.3)", "6x 9x12x9x12 +1 masked"),
    "module": ("return self.heads(x, x, x, need_weights=False)[0]", "6x 9x12x9x12"),
    "parts": ("return (q * 0.3 @ k.transpose(-2, -1) + self.bias).softmax(-1) @ v", "6x 9x12x9x12 +1"),
    "scaled after the bias": (
        "return ((q @ k.mT / 3 + self.bias) * 0.5 + q.mean((1, 3))[:, None, None]).softmax(3) @ v",
        "6x 9x12x9x12 +2",
    ),
    "windows": (
        "s = q @ k.mT + self.bias; s = s.view(1, 3, 2, 9, 9) + self.windows[:, None]; "
        "return (s.view(3, 2, 9, 9).softmax(-1) @ v).transpose(1, 2)",
        "6x 9x12x9x12 +2",
    ),
    "channels first": (
        "y = x.transpose(1, 2).reshape(3, 24, 9); return (y.mT @ y).softmax(-1) @ v[:, 1]",
        "3x 9x24x9x12",
    ),
    "other keys": ("return F.scaled_dot_product_attention(q, k[:, :, 2:7], v[:, :, 1:6, ::3])", "6x 9x12x5x4"),
    "einsum": (
        "s = torch.einsum('bhid,bhjd->bhij', q, k) * self.bias[:, :1, :1]; "
        "return torch.einsum('bhij,bhjd->bihd', (s + self.bias).softmax(-1), v)",
        "6x 9x12x9x12 +1",
    ),
    "transposed values": ("return (q @ k.mT).softmax(3) @ x.reshape(3, 2, 12, 9).mT", "6x 9x12x9x12"),
    "values first": ("return q.mT @ (k @ v.mT / 2).softmax(-1).mT", "6x 9x12x9x12"),
    "shared keys": ("return (q @ k[0, 0].mT).softmax(-1) @ v[0, 0]", "6x 9x12x9x12"),
}
"""The forward method's body, and the label of the only attention."""


SEPARATE = {
    "scores are an output": "s = q @ k.mT; return s, s.softmax(-1) @ v",
    "probabilities are an output": "s = (q @ k.mT).softmax(-1); return s, s @ v",
    "softmax over queries": "return (q @ k.mT).softmax(-2) @ v",
    "no softmax": "return (q @ k.mT).sigmoid() @ v",
    "a factor for each query": "return (q @ k.mT * self.bias[:, :, :1]).softmax(-1) @ v",
    "a bias before a factor for each head": "return ((q @ k.mT + x[0, 0, 0]) * self.bias[:, :1, :1]).softmax(-1) @ v",
    "division by zero": "return (q @ k.mT / 0).softmax(-1) @ v",
    "a replaced score": "return (q @ k.mT).masked_fill(self.holed, -9.0).softmax(-1) @ v",
}
"""The forward method's body, whose products are no attention."""


def compile_and_check(model: ModelSpec) -> list[str]:
    """Compile a network, compare it with torch, and return the labels of its layers other than dense ones."""
    imported, arguments = load_model(model), example_inputs(model)
    found = compute(imported, {name: argument.numpy() for name, argument in arguments.items()})
    for one, other in zip(found, run_network(model, make_network(model), arguments), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-4, atol=1e-5)
    layers = find_layers(for_target(imported, CPU))
    return [layer.workload.label for layer in layers if layer.workload.operator != "dense"]


@pytest.mark.examples(4)
@pytest.mark.parametrize("name", FUSED)
def test_every_spelling_is_one_layer(write: Write, name: str) -> None:
    body, label = FUSED[name]
    assert compile_and_check(write(source(body), 3, 9, 24)) == [f"attention {label}"]


@pytest.mark.examples(2)
@pytest.mark.parametrize("name", SEPARATE)
def test_other_products_stay_separate(write: Write, name: str) -> None:
    labels = compile_and_check(write(source(SEPARATE[name]), 3, 9, 24))
    assert [label.partition(" ")[0] for label in labels] == ["batch_matmul"] * 2


@pytest.mark.examples(1)
@pytest.mark.parametrize("name", ["operator", "mask", "scale", "causal", "rows without a key", "grouped queries"])
def test_attention_is_two_products_on_other_targets(write: Write, name: str) -> None:
    model = write(source(FUSED[name][0]), 3, 9, 24)
    products = [layer.workload for layer in find_layers(load_model(model)) if layer.workload.operator != "dense"]
    assert products == [BatchMatmul(6, 9, 12, 9, transpose_right=True), BatchMatmul(6, 9, 9, 12)]
    assert_same_as_torch(model)


def test_layers_keep_their_names(write: Write) -> None:
    body = "y = (q @ k.mT).softmax(-1) @ v; return self.qkv(y.transpose(1, 2).reshape(3, 9, 24))"
    layers = find_layers(for_target(load_model(write(source(body), 3, 9, 24)), CPU))
    found = [(layer.name, layer.workload.operator) for layer in layers]
    assert found == [("qkv", "dense"), ("matmul_1", "attention"), ("qkv", "dense")]


def test_other_targets_multiply_separately(write: Write) -> None:
    imported = load_model(write(source(FUSED["operator"][0]), 3, 9, 24))
    layers = find_layers(for_target(imported, get_target(describe_cuda(arch="sm_90"))))
    assert [layer.workload.operator for layer in layers] == ["dense", "batch_matmul", "batch_matmul"]


@pytest.mark.parametrize("name", ["operator", "einsum", "windows"])
def test_a_permutation_of_the_result_is_part_of_it(write: Write, name: str) -> None:
    imported = for_target(load_model(write(source(FUSED[name][0]), 3, 9, 24)), CPU)
    names = [operator_of(binding.value) for binding in bindings(imported.module["main"])]
    assert "relax.permute_dims" not in names[names.index("anole.attention") :]
