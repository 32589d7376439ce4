"""The emulated GPU follows CUDA's programming guide, and finds every kind of fault in handwritten kernels."""

from __future__ import annotations

import signal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.emulated_gpu.launch import launch
from kit.emulated_gpu.worker import EmulatedGpu, EmulationError

from ...examples import examples

N = 64


def kernel(body: str, parameters: str = "float* __restrict__ x_ptr, float* __restrict__ y_ptr") -> str:
    """Return a kernel with threads `t` in TVM's style, including declarations of shared arrays."""
    return f"""extern "C" __global__ void __launch_bounds__({N}) one({parameters}) {{
  int t = (int)threadIdx.x;
  {body}
}}
"""


def run(
    gpu: EmulatedGpu, body: str, *, grid: tuple[int, int, int] = (1, 1, 1), block: tuple[int, int, int] = (N, 1, 1)
) -> np.ndarray:
    """Run a kernel with x = 0, 1, 2, ... and y = 0, and return y."""
    x, y = np.arange(2 * N, dtype=np.float32), np.zeros(2 * N, np.float32)
    return gpu.call(launch, kernel(body), "one", grid, block, [x, y])[1]


SHARED = f"__shared__ alignas(64) float s_ptr[{N}];\n  "


def test_threads_exchange_through_shared_memory(emulated_gpu: EmulatedGpu) -> None:
    found = run(emulated_gpu, SHARED + f"s_ptr[t] = x_ptr[t]; __syncthreads(); y_ptr[t] = s_ptr[{N - 1} - t];")
    np.testing.assert_array_equal(found[:N], np.arange(N)[::-1])


def test_blocks_and_threads_have_their_indices(emulated_gpu: EmulatedGpu) -> None:
    place = "(((int)blockIdx.y * 2 + (int)blockIdx.x) * 4 + (int)threadIdx.z) * 4 + (int)threadIdx.y * 2"
    number = "100 * (int)blockIdx.y + 1000 * (int)blockIdx.x + 10 * (int)threadIdx.z + (int)threadIdx.y"
    found = run(emulated_gpu, f"y_ptr[{place}] = {number} + 0.5f * t;", grid=(2, 2, 1), block=(1, 2, 4))
    for at in np.ndindex(2, 2, 4, 2):
        by, bx, z, y = at
        assert found[((by * 2 + bx) * 4 + z) * 4 + y * 2] == 100 * by + 1000 * bx + 10 * z + y


LANES = np.arange(N) % 32
FIRST = np.arange(N) - LANES


@settings(max_examples=examples(4))
@given(distance=st.integers(0, 31), width=st.sampled_from([2, 4, 8, 16, 32]))
def test_warp_shuffles_follow_the_guide(emulated_gpu: EmulatedGpu, distance: int, width: int) -> None:
    distance %= width
    segment = LANES // width * width
    lanes = {
        "down": np.where(LANES + distance < segment + width, LANES + distance, LANES),
        "up": np.where(LANES - distance >= segment, LANES - distance, LANES),
        "xor": np.where((LANES ^ distance) // width == LANES // width, LANES ^ distance, LANES),
        "": segment + distance,
    }
    names = [f"__shfl_{kind}_sync".replace("__sync", "_sync") for kind in lanes]
    given = f"__activemask(), x_ptr[t], {distance}, {width}"
    body = " ".join(f"y_ptr[{place * N} + t] = {name}({given});" for place, name in enumerate(names))
    x, y = np.arange(N, dtype=np.float32), np.zeros(4 * N, np.float32)
    found = emulated_gpu.call(launch, kernel(body), "one", (1, 1, 1), (N, 1, 1), [x, y])[1]
    np.testing.assert_array_equal(found.reshape(4, N), [FIRST + each for each in lanes.values()])


def test_values_of_eight_bytes_are_shuffled(emulated_gpu: EmulatedGpu) -> None:
    body = "long long v = 0x100000000LL * t + t; v = __shfl_down_sync(0xffffffffu, v, 1, 32); y_ptr[t] = v >> 32;"
    assert run(emulated_gpu, body)[0] == 1


def test_a_smaller_warp_has_fewer_lanes(emulated_gpu: EmulatedGpu) -> None:
    found = run(emulated_gpu, "y_ptr[t] = (float)__activemask();", block=(5, 1, 1))
    assert found[0] == 31


def test_atomic_additions_of_all_blocks_add_up(emulated_gpu: EmulatedGpu) -> None:
    found = run(emulated_gpu, "atomicAdd(y_ptr, 1.0f); y_ptr[1 + (int)blockIdx.x * 64 + t] = 1;", block=(8, 1, 1))
    assert found[0] == 8


def test_a_barrier_of_a_warp_orders_its_lanes(emulated_gpu: EmulatedGpu) -> None:
    body = SHARED + "s_ptr[t] = x_ptr[t]; __syncwarp(); y_ptr[t] = s_ptr[t ^ 1];"
    np.testing.assert_array_equal(run(emulated_gpu, body)[:N], np.arange(N) ^ 1)


def test_dynamic_shared_memory_has_the_size_of_the_launch(emulated_gpu: EmulatedGpu) -> None:
    source = kernel("extern __shared__ float d_ptr[];\n d_ptr[t] = x_ptr[t]; __syncthreads(); y_ptr[t] = d_ptr[t ^ 1];")
    x, y = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
    arguments = ("one", (1, 1, 1), (N, 1, 1), [x, y])
    np.testing.assert_array_equal(emulated_gpu.call(launch, source, *arguments, 4 * N)[1], np.arange(N) ^ 1)
    with pytest.raises(EmulationError, match="access of 4 bytes at an address outside of all memory"):
        emulated_gpu.call(launch, source, *arguments, 4 * N - 4)


FAULTS = {
    "two threads write": ("y_ptr[t / 2] = t;", "race: two writes .* by threads 0 and 1"),
    "one reads what another writes": ("y_ptr[t] = t; y_ptr[t + 64] = y_ptr[t ^ 1];", "race: a read and a write"),
    "one writes what another read": ("y_ptr[t + 64] = y_ptr[t + 1]; y_ptr[t] = 1;", "race: a read and a write"),
    "many read, one writes": (
        "y_ptr[64 + t] = y_ptr[0]; if (t == 63) y_ptr[0] = 1;",
        "race: a read and a write .* by threads 62 and 63",
    ),
    "lanes without a barrier": (
        SHARED + "s_ptr[t] = 1; __syncthreads(); y_ptr[t] = s_ptr[t ^ 1]; s_ptr[t] = 2;",
        "race: a write and a read .* of s_ptr",
    ),
    "a barrier of the warp only": (
        SHARED + "s_ptr[t] = 1; __syncthreads(); s_ptr[t] = 2; __syncwarp(); y_ptr[t] = s_ptr[t ^ 32];",
        "race: ",
    ),
    "another's value is missing": (
        SHARED + "s_ptr[t] = 1; y_ptr[t] = s_ptr[t ^ 1];",
        "read of 4 bytes at byte 4 of s_ptr .* is uninitialized",
    ),
    "after the end": ("y_ptr[t + 65] = 1;", "write of 4 bytes at .* is outside of every array"),
    "before the beginning": ("y_ptr[t] = x_ptr[t - 1];", "read of 4 bytes at .* is outside of every array"),
    "after a shared array": (SHARED + "s_ptr[t + 1] = 1;", "outside|no memory"),
    "out of a shared array": (
        SHARED + "*(float4*)(s_ptr + 4 * (t % 4) + 48) = make_float4(0, 0, 0, 0);",
        "race: two writes",
    ),
    "a misaligned vector": (
        "*(float4*)(y_ptr + 4 * (t % 16) + 1) = make_float4(0, 0, 0, 0);",
        "access of 16 bytes at byte 4 of .* is misaligned",
    ),
    "far away": ("y_ptr[(long long)t * 1000000000000LL + 70000000000LL] = 1;", "address outside of all memory"),
    "a barrier for some": ("if (t < 32) { __syncthreads(); } y_ptr[t] = 1;", "not all threads .* barrier: thread 0"),
    "two barriers": ("if (t < 32) { __syncthreads(); } else { __syncthreads(); }", "not all threads .* thread 0 and"),
    "lanes that never arrive": (
        "if (t % 2) y_ptr[t] = __shfl_down_sync(0xffffffffu, 1.0f, 1, 32);",
        "thread 1 waits for lanes of its warp that never arrive",
    ),
    "too much shared memory": (
        "__shared__ alignas(64) float s_ptr[12289]; s_ptr[t] = 1;",
        "a kernel has 49156 bytes of shared memory; at most 49152",
    ),
    "a compiler error": ("nonsense(1);", "nonsense"),
}


@pytest.mark.parametrize(("body", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_found_and_the_next_kernel_runs(emulated_gpu: EmulatedGpu, body: str, fault: str) -> None:
    with pytest.raises(EmulationError, match=fault):
        run(emulated_gpu, body)
    assert run(emulated_gpu, "y_ptr[t] = 2 * x_ptr[t];")[5] == 10


def test_blocks_are_not_ordered(emulated_gpu: EmulatedGpu) -> None:
    for body in ("y_ptr[t] = 1;", "if ((int)blockIdx.x) x_ptr[t] = 1; else y_ptr[t] = x_ptr[t];"):
        with pytest.raises(EmulationError, match=r"race: .*of two blocks"):
            run(emulated_gpu, body, grid=(2, 1, 1))


def test_block_sizes_are_limited(emulated_gpu: EmulatedGpu) -> None:
    for block in ((1025, 1, 1), (1, 1, 65)):
        with pytest.raises(EmulationError, match="INVALID_VALUE"):
            run(emulated_gpu, "y_ptr[0] = 1;", block=block)


def test_a_process_that_ends_is_noticed() -> None:
    from os import _exit

    with EmulatedGpu() as gpu, pytest.raises(EmulationError, match=r"ended \(status 3\)"):
        gpu.call(_exit, 3)


def test_a_hanging_call_is_killed_and_the_next_one_runs() -> None:
    with EmulatedGpu(limit_s=1.0) as gpu:
        with pytest.raises(EmulationError, match=r"exceeded 1 s \(status -9\)"):
            gpu.call(signal.pause)
        gpu.limit_s = 300.0
        assert gpu.call(abs, -1) == 1
