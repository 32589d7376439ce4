"""Products of narrow numbers: the processor's own dot product where it has one, and what defines it elsewhere."""

from __future__ import annotations

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
from anole.task import Conv2d, Dense, Workload

CONVOLUTION = Conv2d(1, 7, 9, 8, 48, (3, 3), (2, 1), (1, 1, 1, 1), dtype="bfloat16")


def description(mcpu: str, *features: str) -> dict[str, Any]:
    return {"kind": "cpu", "mcpu": mcpu, "model": "any", "features": [*features_of(mcpu), *features], "threads": 1}


@pytest.mark.parametrize(
    ("mcpu", "used"), [("x86-64-v3", None), ("icelake-server", None), ("cooperlake", "zmm"), ("znver4", "zmm")]
)
def test_code_uses_the_dot_product_that_the_processor_has(mcpu: str, used: str | None) -> None:
    target = CpuTarget(description(mcpu))
    template, config = target.template(CONVOLUTION), target.default_config(CONVOLUTION)
    func = template.schedule(define(template, CONVOLUTION, config), CONVOLUTION, config)
    library = tvm.compile(tvm.IRModule({"main": func}), llvm_target(target.description), tir_pipeline=pipeline())
    dots = [line for line in library.mod.inspect_source("asm").splitlines() if "vdpbf16ps" in line]
    assert all(used in line for line in dots) if used else not dots
    assert bool(dots) == (used is not None)


@pytest.mark.parametrize("mcpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(
    "workload", [CONVOLUTION, Dense(3, 6, 20, dtype="bfloat16")], ids=lambda workload: workload.operator
)
def test_without_the_instruction_the_result_is_the_same(mcpu: str, workload: Workload, tmp_path: Path) -> None:
    if processor().lacks(mcpu):
        pytest.skip(f"this machine runs no code for {mcpu}")
    target = CpuTarget(description(mcpu))
    template, config = target.template(workload), target.default_config(workload)
    build(template, workload, config, target.description, tmp_path / "kernel.so")
    assert CpuRunner(template, workload, cold_bytes=0).load(tmp_path / "kernel.so", config).relative_error() < 1e-6
