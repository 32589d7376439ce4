"""Dot products of packed words: by the processor's instruction if it has one, else by their definition."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tvm

from anole.host.processor import features_of, processor
from anole.targets.cpu.device.builder import build, llvm_target
from anole.targets.cpu.device.lowering import pipeline
from anole.targets.cpu.device.runner import CpuRunner
from anole.targets.cpu.target import CpuTarget
from anole.targets.shared.kernel import define
from anole.task import BatchMatmul, Conv2d, Dense, Workload

CONVOLUTION = Conv2d(1, 7, 9, 8, 48, (3, 3), (2, 1), (1, 1, 1, 1))
DENSE = Dense(3, 12, 20)
OTHER_BYTE_LAYERS = [
    Conv2d(1, 7, 9, 40, 40, (3, 3), (1, 2), (1, 1, 1, 1), groups=40, dtype="uint8"),
    *(BatchMatmul(2, 5, 12, 20, is_transposed, "uint8") for is_transposed in (False, True)),
]
"""A depthwise convolution, and products of activations."""

DTYPES = ("bfloat16", "uint8")


def description(mcpu: str, *features: str) -> dict[str, Any]:
    return {"kind": "cpu", "mcpu": mcpu, "model": "any", "features": [*features_of(mcpu), *features], "threads": 1}


@pytest.mark.examples(4)
@pytest.mark.parametrize(
    ("dtype", "mcpu", "features", "used", "register"),
    [
        ("bfloat16", "x86-64-v3", [], None, ""),
        ("bfloat16", "icelake-server", [], None, ""),
        ("bfloat16", "znver4", [], "vdpbf16ps", "zmm"),
        ("uint8", "x86-64-v2", [], "pmaddwd", "xmm"),
        ("uint8", "x86-64-v3", [], "vpmaddwd", "ymm"),
        ("uint8", "x86-64-v3", ["avx_vnni"], "vpdpbusd", "ymm"),
        ("uint8", "x86-64-v4", [], "vpmaddwd", "zmm"),
        ("uint8", "icelake-server", [], "vpdpbusd", "zmm"),
    ],
)
def test_code_uses_the_fastest_dot_product_of_the_processor(
    dtype: str, mcpu: str, features: list[str], used: str | None, register: str
) -> None:
    target, workload = CpuTarget(description(mcpu, *features)), replace(CONVOLUTION, dtype=dtype)
    template, config = target.template(workload), target.default_config(workload)
    func = template.schedule(define(template, workload, config), workload, config)
    library = tvm.compile(tvm.IRModule({"main": func}), llvm_target(target.description), tir_pipeline=pipeline())
    dots = [(line, _DOT.search(line)) for line in library.mod.inspect_source("asm").splitlines()]
    assert {found[0] for _, found in dots if found} == ({used} if used else set())
    assert all(register in line for line, found in dots if found)


_DOT = re.compile(r"\b(v?pmaddwd|v?pmaddubsw|vpdp\w+|vdpbf16ps)\b")


@pytest.mark.examples(4)
@pytest.mark.parametrize("mcpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("workload", [CONVOLUTION, DENSE], ids=lambda workload: workload.operator)
def test_without_the_instruction_the_result_is_the_same(
    mcpu: str, dtype: str, workload: Workload, tmp_path: Path
) -> None:
    assert error_of(replace(workload, dtype=dtype), description(mcpu), tmp_path) <= ERRORS[dtype]


ERRORS = {"bfloat16": 1e-6, "uint8": 0.0}


@pytest.mark.parametrize("mcpu", ["x86-64", "x86-64-v3", "x86-64-v4", "icelake-server"])
@pytest.mark.parametrize("workload", OTHER_BYTE_LAYERS, ids=lambda workload: workload.label)
def test_other_byte_layers_are_exact_on_every_processor(mcpu: str, workload: Workload, tmp_path: Path) -> None:
    assert error_of(workload, description(mcpu), tmp_path) == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors_of_three_packed_words_use_the_definition(dtype: str, tmp_path: Path) -> None:
    """Vectors have three packed words, because filters of two groups do not share vectors."""
    workload = replace(CONVOLUTION, in_channels=16, out_channels=6, groups=2, dtype=dtype)
    assert error_of(workload, description("x86-64"), tmp_path) <= ERRORS[dtype]


def error_of(workload: Workload, described: dict[str, Any], folder: Path) -> float:
    """Return the relative error of code for a processor; skip the test if this machine cannot run it."""
    if processor().missing_features(described["mcpu"]):
        pytest.skip(f"this machine runs no code for {described['mcpu']}")
    target = CpuTarget(described)
    template, config = target.template(workload), target.default_config(workload)
    build(template, workload, config, described, folder / "kernel.so")
    return CpuRunner(template, workload, cold_bytes=0).load(folder / "kernel.so", config).relative_error()
