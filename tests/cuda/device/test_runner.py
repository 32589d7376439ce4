"""The CUDA runner and the peak kernel; some tests need a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from anole.errors import TargetError
from anole.measure.measurer import Measurer
from anole.measure.options import Limits, MeasureOptions
from anole.record import Status
from anole.search.evaluators.fixed import Fixed
from anole.task import Conv2d, Task
from anole_cuda.device.builder import prepare_to_compile, source
from anole_cuda.device.machine import present_gpus
from anole_cuda.device.peak import flop, peak_kernel
from anole_cuda.settings import describe_cuda
from anole_cuda.target import CudaTarget

WORKLOAD = Conv2d(1, 14, 14, 32, 32, (3, 3), padding=(1, 1, 1, 1))


@pytest.fixture
def target() -> CudaTarget:
    if not present_gpus():
        pytest.skip("needs a GPU")
    return CudaTarget(describe_cuda())


@pytest.fixture
def measurer(target: CudaTarget) -> Iterator[Measurer]:
    options = MeasureOptions(Fixed(), limits=Limits(build_s=120.0, run_s=60.0))
    with Measurer(Task(WORKLOAD, target.description, 1), options, target=target) as measurer:
        yield measurer


def test_the_peak_kernel_has_only_independent_multiply_adds() -> None:
    prepare_to_compile()
    code = source(peak_kernel(64), describe_cuda("sm_90"))
    loop = code[code.index("for (int step") :]
    steps = re.findall(r"peak_local_ptr\[(\d+)\] = \(\(peak_local_ptr\[\1\] \* factors_ptr\[0\]\) \+ (.+?)\);", loop)
    assert len(steps) == len({accumulator for accumulator, _ in steps}) == len({addend for _, addend in steps})
    (n_steps,) = re.findall(r"step < (\d+)", loop)
    threads = int(re.findall(r"__launch_bounds__\((\d+)\)", code)[0])
    assert flop(64) == 2 * 64 * threads * len(steps) * int(n_steps)


@pytest.mark.gpu
def test_candidates_are_correct_and_timed(target: CudaTarget, measurer: Measurer) -> None:
    config = target.default_config(WORKLOAD)
    measured = list(measurer.measure([config, config]))
    assert [measurement.status for measurement in measured] == [Status.OK] * 2, measured
    assert all(0 < (measurement.latency_s or 0) < 1e-2 for measurement in measured)
    confirmed = measurer.confirm([config, config], seconds_each=0.1)
    assert [measurement.status for measurement in confirmed] == [Status.OK] * 2


@pytest.mark.gpu
def test_the_peak_is_plausible(target: CudaTarget) -> None:
    assert 100 < target.peak_gflops() < 1e6


@pytest.mark.gpu
def test_another_architecture_is_rejected(target: CudaTarget) -> None:
    other = "sm_70" if target.description["arch"] != "sm_70" else "sm_75"
    with pytest.raises(TargetError, match=f"cuda {other}: this machine's GPU is"):
        CudaTarget(describe_cuda(other)).runner(WORKLOAD)
