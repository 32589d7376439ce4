"""Workloads and tasks: their JSON forms, labels and keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anole.task import (
    Attention,
    BatchMatmul,
    Conv2d,
    Dense,
    Task,
    WeightScheme,
    Workload,
    workload_from_json,
    workload_to_json,
)

CONV = Conv2d(1, 56, 56, 64, 64, (3, 3), padding=(1, 1, 1, 1))
TARGET = {"kind": "cpu", "mcpu": "x86-64", "threads": 2}


@pytest.mark.parametrize(
    ("workload", "label", "flop"),
    [
        (CONV, "conv2d 64->64 k3x3 s1 56x56", 231_211_008),
        (Dense(4, 512, 1000), "dense 512->1000 n4", 4_096_000),
        (Dense(1, 512, 10, weights=WeightScheme(8, 512)), "dense 512->10 weights int8", 10_240),
        (Dense(1, 512, 10, weights=WeightScheme(4, 32, zeros=True)), "dense 512->10 weights uint4x32", 10_240),
        (BatchMatmul(8, 128, 64, 32), "batch_matmul 8x 128x64x32", 4_194_304),
        (BatchMatmul(1, 2, 3, 4, transpose_right=True), "batch_matmul 1x 2x3x4 transposed", 48),
        (Attention(12, 197, 50, 64, 32), "attention 12x 197x64x50x32", 22_694_400),
        (Attention(1, 2, 3, 4, 5, addends=2, masked=True), "attention 1x 2x4x3x5 +2 masked", 108),
        (BatchMatmul(1, 2, 4, 4, dtype="uint8"), "batch_matmul 1x 2x4x4 uint8", 64),
    ],
    ids=lambda value: getattr(value, "operator", None),
)
def test_json_label_and_flop_of_a_workload(workload: Workload, label: str, flop: int) -> None:
    assert workload_from_json(workload_to_json(workload)) == workload
    assert (workload.label, workload.flop) == (label, flop)


@pytest.mark.parametrize(
    ("workload", "key"),
    [
        (CONV, "c20d7df17aba5ef1b95a834bee972ed7bc0eada2546c35dca1b79c67e2da36b9"),
        (Dense(1, 512, 1000), "6a29a3a45626a132ebd594f089794c03bb9c446dba85490fb383b6b97862c379"),
    ],
    ids=["conv2d", "dense"],
)
def test_keys_are_stable(workload: Workload, key: str) -> None:
    assert Task(workload, TARGET, 1).key == key


@pytest.mark.parametrize("workload", [CONV, Dense(4, 512, 1000)], ids=["conv2d", "dense"])
def test_an_exact_workload_is_a_different_task(workload: Conv2d | Dense) -> None:
    exact = replace(workload, exact=True)
    assert workload_from_json(workload_to_json(exact)) == exact
    assert Task(exact, TARGET, 1).key != Task(workload, TARGET, 1).key
    assert "exact" in exact.label and "exact" not in workload_to_json(workload)


def test_a_transposed_product_is_a_different_task() -> None:
    plain, transposed = (BatchMatmul(8, 128, 64, 128, transpose) for transpose in (False, True))
    assert Task(plain, TARGET, 1).key != Task(transposed, TARGET, 1).key


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"operator": "lstm"}, "the operator is 'lstm', not one of conv2d, dense, batch_matmul, attention"),
        ({"operator": None}, "the operator is None"),
        ({"batch": 10**30}, "batch is 1000000000000000000000000000000, not an integer from 1 to 2147483647"),
        ({"batch": 0}, "batch is 0, not"),
        ({"batch": -1}, "batch is -1, not"),
        ({"batch": None}, "batch is None, not"),
        ({"batch": "1"}, "batch is '1', not"),
        ({"batch": True}, "batch is True, not"),
        ({"batch": 1.0}, "batch is 1.0, not"),
        ({"strides": [0, 1]}, r"strides\[0\] is 0, not an integer from 1 to 2147483647"),
        ({"strides": [1]}, r"strides is \[1\], not a list of 2 items"),
        ({"strides": [[1], 1]}, r"strides\[0\] is \[1\], not"),
        ({"dilation": [0, 0]}, r"dilation\[0\] is 0, not"),
        ({"padding": [0, 0, 0, -1]}, r"padding\[3\] is -1, not"),
        ({"groups": 0}, "groups is 0"),
        ({"groups": 65}, "conv2d 64->64 k3x3 s1 g65 56x56 has 0 floating-point operations"),
        ({"kernel": [59, 3]}, "conv2d 64->64 k59x3 s1 56x56: the output would have 0x56 elements"),
        ({"height": 2**30, "width": 2**30}, "floating-point operations; 1 to 2\\^63 - 1 are allowed"),
        ({"dtype": 3}, "dtype is 3, not text"),
        ({"color": 3}, "color is unknown; allowed: batch, "),
    ],
)
def test_an_invalid_workload_is_rejected(change: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        workload_from_json({**workload_to_json(CONV), **change})


@pytest.mark.parametrize(
    ("scheme", "problem"),
    [
        ({"bits": 3, "block": 32}, "weights.bits is 3, not one of 4, 8"),
        ({"bits": 4, "block": 0}, "weights.block is 0, not"),
        ({"bits": 4, "block": 48}, "in_features must be a multiple of the block"),
        ({"bits": 4, "block": 4}, "in_features must be a multiple of the block"),
        ({"bits": 4}, "weights.block is missing"),
    ],
)
def test_an_invalid_weight_scheme_is_rejected(scheme: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        workload_from_json({**workload_to_json(Dense(1, 512, 1000)), "weights": scheme})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"workload": None}, "the workload is None, not an object"),
        ({"workload": {"operator": "dense", "batch": 1}}, "in_features is missing"),
        ({"target": None}, "the target is None, not an object with a kind"),
        ({"target": {"kind": 3}}, "the target is {'kind': 3}, not an object with a kind"),
        ({"template_version": "1"}, "the template_version is '1', not an integer"),
    ],
)
def test_an_invalid_task_is_rejected(change: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Task.from_json({**Task(CONV, TARGET, 1).to_json(), **change})
