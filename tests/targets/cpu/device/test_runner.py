"""Candidates in this process: warm data, cold weights, and answers that are really written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anole.targets import get_target
from anole.targets.cpu.device.runner import CpuRunner
from anole.targets.cpu.settings import describe_cpu
from anole.task import BatchMatmul, Dense

WORKLOAD = Dense(1, 256, 64)
WEIGHT_BYTES = 4 * 256 * 64


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    target = get_target(describe_cpu())
    target.build(WORKLOAD, target.default_config(WORKLOAD), tmp_path / "kernel.so")
    return tmp_path / "kernel.so"


def runner(cold_bytes: int) -> CpuRunner:
    return CpuRunner(get_target(describe_cpu()).template(WORKLOAD), WORKLOAD, cold_bytes)


@pytest.mark.parametrize(("cold_bytes", "copies"), [(0, 1), (3 * WEIGHT_BYTES, 4)])
def test_every_run_reads_the_copy_that_was_not_read_for_longest(artifact: Path, cold_bytes: int, copies: int) -> None:
    kernel = runner(cold_bytes).load(artifact, get_target(describe_cpu()).default_config(WORKLOAD))
    weights = [next(kernel._arguments)[1] for _ in range(2 * copies)]
    assert len({id(weight) for weight in weights}) == copies
    assert weights[:copies] == weights[copies:]
    assert max(kernel.relative_error() for _ in range(copies)) < 1e-5


def test_what_is_computed_is_warm(tmp_path: Path) -> None:
    target, product = get_target(describe_cpu()), BatchMatmul(2, 8, 16, 32)
    target.build(product, target.default_config(product), tmp_path / "kernel.so")
    kernel = CpuRunner(target.template(product), product).load(tmp_path / "kernel.so", target.default_config(product))
    first, second = next(kernel._arguments), next(kernel._arguments)
    assert [id(argument) for argument in first] == [id(argument) for argument in second]
    assert kernel.relative_error() < 1e-5


def test_an_answer_that_is_not_written_is_wrong(artifact: Path) -> None:
    kernel = runner(0).load(artifact, get_target(describe_cpu()).default_config(WORKLOAD))
    kernel._kernel = lambda *arguments: None
    assert np.isnan(kernel.relative_error())
