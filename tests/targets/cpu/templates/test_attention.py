"""Attention's kernel treats infinite scores as torch does, and its default config fills the registers."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
import torch
import tvm
from torch.nn import functional as F

from anole.targets.cpu.device.builder import load
from anole.targets.cpu.templates.attention_space import attention_space, covered_rows
from anole.targets.shared.kernel import define
from anole.task import Attention

from ....extract.passes.building import random_array
from .cases import AVX2, AVX512, PROCESSOR, Case


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("values", [(-inf,), (-inf, 0.5), (torch.finfo(torch.float32).min,), (inf, 1.0), (nan, 0.0)])
def test_special_scores_match_torch(masked: bool, values: tuple[float, ...]) -> None:
    case = Case(Attention(2, 7, 11, 5, 9, addends=1, masked=masked))
    query, key, value = (torch.from_numpy(random_array(2, *shape)) for shape in ((7, 5), (11, 5), (11, 9)))
    bias = torch.zeros(2, 7, 11)
    bias[1, 3] = torch.tensor([*values, *values[-1:] * (11 - len(values))])
    func = case.template.schedule(define(case.template, case.workload, case.config), case.workload, case.config)
    found = tvm.runtime.tensor(np.zeros((2, 7, 9), np.float32))
    load(func, PROCESSOR)(*(tvm.runtime.tensor(each.numpy()) for each in (query, key, value, bias)), found)
    plain = (query @ key.mT + bias).softmax(-1) @ value
    expected = F.scaled_dot_product_attention(query, key, value, bias, scale=1.0) if masked else plain
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_rows_are_rounded_up_to_good_tiles() -> None:
    assert [covered_rows(rows) for rows in (1, 6, 16, 17, 49, 64, 197, 1024)] == [1, 6, 16, 18, 49, 66, 198, 1026]
    assert all(0 <= covered_rows(rows, parts) - rows < 6 * parts for rows in range(1, 300) for parts in (1, 2))


@pytest.mark.parametrize(("unit", "accumulators"), [(AVX2, 12), (AVX512, 22)])
def test_the_default_config_fills_the_registers(unit: object, accumulators: int) -> None:
    config = Case(Attention(12, 198, 198, 64, 64), unit, threads=1).default
    assert config["tile_y"][3] * config["panel_vectors"] == accumulators


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_all_threads_have_chunks(threads: int) -> None:
    w = Attention(1, 192, 192, 64, 64)
    assert Case(w, AVX2, threads).default["tile_y"][0] >= threads
    assert attention_space(AVX2, threads, w).rejection({"tile_y": [1, 4, 8, 6], "panel_vectors": 2}) == (
        None if threads == 1 else "fewer parallel chunks than threads"
    )
