"""Dense layers with few rows on CUDA: threads that share a reduction synchronize in all of its steps."""

from __future__ import annotations

import pytest
import tvm
from tvm import ir, tirx

from anole.ir.nodes import collect
from anole.record import Config
from anole.task import Dense
from anole_cuda.device.builder import cuda_target
from kit.emulated_gpu.programs import run_candidate
from kit.emulated_gpu.worker import EmulatedGpu, EmulationError

from .candidates import TARGET, schedule

REASON = "the last warp adds up partial sums without waiting for its lanes"
THREADS = [*range(1, 34), 40, 48, 63, 64, 65, 83, 96, 100, 128, 320]


def config_of(along_x: int, along_k: int) -> tuple[Dense, Config]:
    """Return a layer and a config with the given numbers of threads along the features and the reduction."""
    splits = {"tile_y": [1, 1], "tile_x": [2, along_x, 1], "tile_k": [1, along_k, 2]}
    return Dense(1, 2 * along_k, 2 * along_x), {**splits, "auto_unroll_max_step": 0, "unroll_explicit": 0}


def relies_on_lockstep(workload: Dense, config: Config) -> bool:
    """Whether lanes of a warp must synchronize, for which TVM generates no CUDA C++ code."""
    target = cuda_target(TARGET.description)
    pipeline, _, _ = tirx.get_default_tir_pipeline(target)
    lowered = pipeline(tirx.transform.BindTarget(target)(tvm.IRModule({"main": schedule(workload, config)})))
    calls = [call for _, each in lowered.functions_items() for call in collect(each.body, ir.Call)]
    barriers = [call for call in calls if getattr(call.op, "name", "") == "tirx.tvm_storage_sync"]
    return "warp" in [str(barrier.args[0].value) for barrier in barriers]


@pytest.mark.examples(1)
@pytest.mark.parametrize("along_x", [1, 2, 3])
def test_exactly_the_configs_that_rely_on_lockstep_are_rejected(along_x: int) -> None:
    for along_k in THREADS:
        workload, config = config_of(along_x, along_k)
        rejected = REASON in (TARGET.space(workload).rejection(config) or "")
        assert rejected == relies_on_lockstep(workload, config), (along_x, along_k)


@pytest.mark.guard
@pytest.mark.parametrize("along_k", [33, 48, 100])
def test_rejected_configs_have_a_race(along_k: int, emulated_gpu: EmulatedGpu) -> None:
    with pytest.raises(EmulationError, match="race: a read and a write"):
        emulated_gpu.call(run_candidate, TARGET.description, *config_of(1, along_k))
    assert emulated_gpu.call(run_candidate, TARGET.description, *config_of(2, along_k)) < 1e-6


def test_a_layer_without_full_warps_has_a_config() -> None:
    workload = Dense(1, 83, 1)
    assert TARGET.default_config(workload)["tile_k"][1] == 1
