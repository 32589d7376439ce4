"""A network lowered for CUDA computes the model's results on an emulated GPU, and leaves nothing to the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tvm

from anole.compiler.lower import Choice
from anole.task import Conv2d, Workload
from anole_cuda.settings import describe_cuda
from anole_cuda.target import CudaTarget
from anole_cuda.templates.winograd import WinogradTemplate
from anole_cuda.templates.winograd_space import can_winograd, winograd_space
from kit.emulated_gpu.programs import run_network
from kit.emulated_gpu.worker import EmulatedGpu

from .conftest import by_default, functions, lower_network, random_config

TARGET = CudaTarget(describe_cuda("sm_90"))


def by_winograd(size: int, target: CudaTarget, workload: Workload) -> Choice:
    """Return a Winograd program if the workload allows it, and the default otherwise."""
    if not (isinstance(workload, Conv2d) and can_winograd(workload)):
        return by_default(target, workload)
    space = winograd_space(target.limits, target.gpu, workload)
    return Choice(WinogradTemplate(), {**space.best_sampled, "tile_size": size})


def check_emulated(net: Any, module: tvm.IRModule, gpu: EmulatedGpu) -> None:
    """Assert that the module runs entirely on the GPU, and computes the network's outputs."""
    assert all("threadIdx.x" in func.script() for func in functions(module).values())
    net.check(gpu.call(run_network, tvm.ir.save_json(module), TARGET.description, net.inputs))


@pytest.mark.guard
@pytest.mark.parametrize(
    ("name", "choose"),
    [
        ("residual", by_default),
        ("joined", by_default),
        *(
            (name, partial(random_config, 0))
            for name in ("residual", "branches", "joined", "varied", "gated", "summed", "enlarged", "norm_last")
        ),
    ],
)
def test_any_configs_compute_the_same(
    network: Callable[[str], Any], name: str, choose: Callable[[Any, Workload], Choice], emulated_gpu: EmulatedGpu
) -> None:
    net = network(name)
    check_emulated(net, lower_network(net.imported, TARGET, choose), emulated_gpu)


@pytest.mark.guard
@pytest.mark.parametrize(("name", "size"), [("residual", 2), ("branches", 4)])
def test_winograd_computes_the_same(
    network: Callable[[str], Any], name: str, size: int, emulated_gpu: EmulatedGpu
) -> None:
    net = network(name)
    module = lower_network(net.imported, TARGET, partial(by_winograd, size))
    assert any("winograd_product" in func.script() for func in functions(module).values())
    check_emulated(net, module, emulated_gpu)


@pytest.mark.parametrize(
    ("name", "choose"),
    [
        pytest.param("residual", by_default, id="default"),
        pytest.param("residual", partial(by_winograd, 2), id="winograd", marks=pytest.mark.guard),
        pytest.param("branches", partial(by_winograd, 4), id="winograd into slices", marks=pytest.mark.guard),
    ],
)
def test_a_network_is_compiled_to_binaries_without_a_gpu(
    network: Callable[[str], Any], name: str, choose: Callable[[Any, Workload], Choice], tmp_path: Path
) -> None:
    options = tvm.transform.PassContext(config=dict(TARGET.compiler_options))
    with TARGET.compiler_target() as target, options:
        executable = tvm.compile(lower_network(network(name).imported, TARGET, choose), target)
    executable.export_library(str(tmp_path / "network.so"))
    library = (tmp_path / "network.so").read_bytes()
    assert b".nv.info" in library
    assert b"AllocWorkspace" not in library
