"""Attention from torch comes apart into two products, however it is asked for, and computes the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from anole.declared.entries import ModelSpec
from anole.extract.graph import find_layers
from anole.extract.load import load_model
from anole.task import BatchMatmul

from .building import assert_same_as_torch

SOURCE = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, keys=4, mask=None, **settings):
        super().__init__()
        self.keys, self.settings = keys, settings
        self.register_buffer("mask", mask)

    def forward(self, x):
        query = x.view(2, 10, 4, 8).transpose(1, 2)
        key = query[:, : self.keys]
        return nn.functional.scaled_dot_product_attention(query, key, key, self.mask, **self.settings)

def lower():
    return torch.ones(10, 10).tril().bool()

def holed():
    mask = lower()
    mask[3] = False
    return mask

plain = Attention
scaled = lambda: Attention(scale=0.3)
causal = lambda: Attention(is_causal=True)
boolean = lambda: Attention(mask=lower())
empty_row = lambda: Attention(mask=holed())
additive = lambda: Attention(mask=torch.randn(10, 10))
shared = lambda: Attention(keys=2, enable_gqa=True)
"""


@pytest.mark.parametrize(
    "name",
    [
        *("plain", "boolean"),
        *(
            pytest.param(name, marks=pytest.mark.guard)
            for name in ("scaled", "causal", "empty_row", "additive", "shared")
        ),
    ],
)
def test_attention_comes_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "attention.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    model = ModelSpec("net", f"torch:attention:{name}", {"x": (2, 10, 32)})
    assert [layer.workload for layer in find_layers(load_model(model))] == [
        BatchMatmul(8, 10, 8, 10, transpose_right=True),
        BatchMatmul(8, 10, 10, 8),
    ]
    assert_same_as_torch(model)
