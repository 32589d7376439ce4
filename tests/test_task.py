"""Workloads and tasks: their plain forms, labels and keys."""

from __future__ import annotations

import pytest

from anole.task import BatchMatmul, Conv2d, Dense, Task, Workload, workload_from_json, workload_to_json

CONV = Conv2d(1, 56, 56, 64, 64, (3, 3), padding=(1, 1, 1, 1))
TARGET = {"kind": "cpu", "mcpu": "x86-64", "threads": 2}


@pytest.mark.parametrize(
    ("workload", "label", "flop"),
    [
        (CONV, "conv2d 64->64 k3x3 s1 56x56", 231_211_008),
        (Dense(4, 512, 1000), "dense 512->1000 n4", 4_096_000),
        (BatchMatmul(8, 128, 64, 32), "batch_matmul 8x 128x64x32", 4_194_304),
        (BatchMatmul(1, 2, 3, 4, transpose_right=True), "batch_matmul 1x 2x3x4 transposed", 48),
    ],
    ids=lambda value: getattr(value, "operator", None),
)
def test_a_workload_survives_its_plain_form(workload: Workload, label: str, flop: int) -> None:
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
def test_keys_stay_while_operators_are_added(workload: Workload, key: str) -> None:
    assert Task(workload, TARGET, 1).key == key


def test_transposing_is_another_task() -> None:
    plain, transposed = (BatchMatmul(8, 128, 64, 128, transpose) for transpose in (False, True))
    assert Task(plain, TARGET, 1).key != Task(transposed, TARGET, 1).key
