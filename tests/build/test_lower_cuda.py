"""A network lowered for CUDA computes what the model computes, run serially here, and leaves nothing to the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from anole.build.lower import Choice, lower
from anole.targets.cuda.serial import serial
from anole.targets.cuda.target import CudaTarget

TARGET = CudaTarget(CudaTarget.describe("sm_90"))


def lowered(network: Any, seed: int | None = None) -> tvm.IRModule:
    """The network in CUDA's functions, each task by its default config or a random one."""
    chosen = {}
    for position, workload in enumerate(network.tasks):
        config = TARGET.default_config(workload)
        if seed is not None:
            space = TARGET.space(workload)
            config = space.config(space.sample(1, np.random.default_rng([seed, position]))[0])
        chosen[workload] = Choice(TARGET.template(workload), config)
    module, failures = lower(network.imported.module, chosen, TARGET.schedule_default)
    assert not failures
    return module


def functions(module: tvm.IRModule) -> dict[Any, tirx.PrimFunc]:
    return {variable: func for variable, func in module.functions_items() if isinstance(func, tirx.PrimFunc)}


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("name", ["residual", "branches", "joined", "varied"])
def test_any_configs_compute_the_same(network: Callable[[str], Any], name: str, seed: int | None) -> None:
    net = network(name)
    module = lowered(net, seed)
    for variable, func in functions(module).items():
        assert "threadIdx.x" in func.script()
        module.update_func(variable, serial(func))
    main = relax.VirtualMachine(tvm.compile(module, tvm.target.Target("llvm")), tvm.cpu())["main"]
    found = main(*map(tvm.runtime.tensor, net.inputs))
    net.check([found.numpy()] if isinstance(found, tvm.runtime.Tensor) else [each.numpy() for each in found])


def test_a_network_is_compiled_to_binaries_without_a_gpu(network: Callable[[str], Any], tmp_path: Path) -> None:
    with TARGET.compiler_target() as target:
        executable = tvm.compile(lowered(network("residual")), target)
    executable.export_library(str(tmp_path / "network.so"))
    assert b".nv.info" in (tmp_path / "network.so").read_bytes()
