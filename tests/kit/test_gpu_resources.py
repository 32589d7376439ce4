"""Resources read from compiled kernels match their sources."""

from __future__ import annotations

import pytest

from anole.errors import TargetError
from kit.gpu_resources import Resources, resources_of

COPY = """
extern "C" __global__ void __launch_bounds__(64) copy(const float* from, float* to) {{
  __shared__ float staged[{shared}];
  staged[threadIdx.x] = from[threadIdx.x];
  __syncthreads();
  to[threadIdx.x] = staged[63 - threadIdx.x];
}}
"""
INDEXED = """
extern "C" __global__ void indexed(const int* at, float* to) {
  float held[100];
  for (int i = 0; i < 100; ++i) held[at[i]] = i;
  to[threadIdx.x] = held[at[threadIdx.x]];
}
"""


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_shared_memory_and_registers_are_read(arch: str) -> None:
    small, large = (resources_of(COPY.format(shared=values), arch) for values in (64, 1024))
    assert (small.shared_bytes, large.shared_bytes) == (256, 4096)
    assert 0 < small.registers == large.registers < 32
    assert small.local_bytes == large.local_bytes == 0
    assert small.occupancy(arch, 64) > 0.9


def test_spilled_values_are_local_memory() -> None:
    assert resources_of(INDEXED, "sm_90").local_bytes >= 400


def test_several_kernels_count_by_their_maximum() -> None:
    both = resources_of(COPY.format(shared=64) + COPY.format(shared=512).replace("copy", "other"), "sm_90")
    assert both.shared_bytes == 2048


@pytest.mark.parametrize(("source", "arch"), [("not C++", "sm_90"), (COPY.format(shared=64), "sm_35")])
def test_nvrtc_errors_are_reported(source: str, arch: str) -> None:
    with pytest.raises(TargetError, match="NVRTC rejects the source"):
        resources_of(source, arch)


def test_occupancy_follows_from_registers_and_shared_memory() -> None:
    assert Resources(32, 0, 0).occupancy("sm_80", 256) == 1.0
    assert Resources(128, 0, 0).occupancy("sm_80", 256) == 0.25
    assert Resources(32, 40 << 10, 0).occupancy("sm_80", 256) == 0.5
