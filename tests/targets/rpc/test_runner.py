"""The runner of candidates in an RPC session, tested with a local session."""

from __future__ import annotations

from pathlib import Path

import pytest
from tvm import rpc

from anole.targets.cpu.settings import describe_cpu
from anole.targets.cpu.target import CpuTarget
from anole.targets.rpc.runner import Conditions, SessionRunner
from anole.task import BatchMatmul, Dense, Workload

WORKLOAD = Dense(2, 16, 24)
TARGET = CpuTarget(describe_cpu(threads=1))


def runner_of(conditions: Conditions, workload: Workload = WORKLOAD) -> SessionRunner:
    session = rpc.LocalSession()
    return SessionRunner(TARGET.template(workload), workload, session, session.cpu(0), conditions)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("built") / "kernel.so"
    TARGET.build(WORKLOAD, TARGET.default_config(WORKLOAD), path)
    return path


@pytest.mark.parametrize(
    "conditions",
    [
        Conditions(),
        Conditions({"cache_flush_bytes": 1 << 20}, warm_up_s=0.01),
        Conditions({"f_preproc": "cache_flush_cpu_non_first_arg"}),
    ],
    ids=["nothing", "flush", "cold weights"],
)
def test_a_kernel_is_correct_and_timed(artifact: Path, conditions: Conditions) -> None:
    kernel = runner_of(conditions).load(artifact, TARGET.default_config(WORKLOAD))
    assert kernel.relative_error() < 1e-6
    assert 0 < kernel(3) < 1e-2


def test_a_product_of_activations_has_no_bias(tmp_path: Path) -> None:
    workload = BatchMatmul(2, 3, 16, 8)
    config = TARGET.default_config(workload)
    TARGET.build(workload, config, tmp_path / "kernel.so")
    assert runner_of(Conditions(), workload).load(tmp_path / "kernel.so", config).relative_error() < 1e-6


def test_a_kernel_error_is_not_a_lost_session(artifact: Path) -> None:
    runner, other = runner_of(Conditions()), runner_of(Conditions(), Dense(2, 16, 48))
    config = TARGET.default_config(WORKLOAD)
    with pytest.raises((RuntimeError, ValueError), match="negative"):
        other.load(artifact, config).relative_error()
    assert runner.load(artifact, config).relative_error() < 1e-6
