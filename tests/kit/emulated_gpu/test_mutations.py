"""Mutation tests: the emulated GPU detects missing barriers and off-by-one indices in template kernels."""

from __future__ import annotations

import re
from functools import partial

import pytest

from anole.record import Config
from anole.task import BatchMatmul, Conv2d, Dense, Workload
from kit.emulated_gpu.programs import replace_nth, run_candidate
from kit.emulated_gpu.worker import EmulatedGpu, EmulationError
from tests.cuda.templates.candidates import TARGET, source_of

ROLLED = {"auto_unroll_max_step": 0, "unroll_explicit": 0}
SPATIAL = {"tile_y": [2, 1, 2, 1], "tile_x": [1, 2, 2, 1], "tile_f": [1, 1, 8, 1], **ROLLED}
STEPS = {"tile_rc": [2, 4], "tile_ry": [3, 1], "tile_rx": [1, 3]}
SAME = (1, 1, 1, 1)

CANDIDATES: dict[str, tuple[Workload, Config]] = {
    "conv2d": (Conv2d(1, 4, 4, 8, 8, (3, 3), padding=SAME), {"algorithm": "direct", **SPATIAL, **STEPS}),
    "grouped": (Conv2d(1, 4, 4, 16, 16, (3, 3), padding=SAME, groups=2), {**SPATIAL, **STEPS}),
    "depthwise": (Conv2d(1, 4, 4, 8, 8, (3, 3), padding=SAME, groups=8), SPATIAL),
    "winograd": (
        Conv2d(1, 4, 4, 8, 8, (3, 3), padding=SAME),
        {
            **{"algorithm": "winograd", "tile_size": 2, "tile_f": [1, 1, 8, 1], "tile_p": [1, 4, 1]},
            **{"tile_rc": [2, 4], **ROLLED},
        },
    ),
    "gemm": (Dense(32, 8, 8), {"tile_y": [2, 1, 8, 2], "tile_x": [1, 1, 4, 2], "tile_k": [2, 4], **ROLLED}),
    "gemv": (Dense(2, 128, 4), {"tile_y": [2, 1], "tile_x": [1, 2, 2], "tile_k": [2, 64, 1], **ROLLED}),
    "batch_matmul": (
        BatchMatmul(2, 16, 8, 8),
        {"tile_y": [2, 1, 8, 1], "tile_x": [1, 1, 4, 2], "tile_k": [2, 4], **ROLLED},
    ),
}
"""A candidate of every template, with several steps of the outer reduction, which need all barriers."""


def is_found(gpu: EmulatedGpu, name: str, what: str, by: str, which: int) -> bool:
    """Whether a candidate with a changed source is faulty or computes something else."""
    edit = partial(replace_nth, what, by, which)
    try:
        return gpu.call(run_candidate, TARGET.description, *CANDIDATES[name], edit) > 1e-3
    except EmulationError as error:
        assert "main_kernel" in str(error), error
        return True


@pytest.mark.parametrize("name", CANDIDATES)
def test_the_candidate_is_right(name: str, emulated_gpu: EmulatedGpu) -> None:
    assert emulated_gpu.call(run_candidate, TARGET.description, *CANDIDATES[name]) < 1e-6


@pytest.mark.parametrize("name", CANDIDATES)
def test_every_missing_barrier_is_found(name: str, emulated_gpu: EmulatedGpu) -> None:
    barrier = "__syncthreads();"
    n_barriers = source_of(*CANDIDATES[name]).count(barrier)
    assert n_barriers
    for which in range(n_barriers):
        assert is_found(emulated_gpu, name, barrier, "", which), which


@pytest.mark.parametrize("name", CANDIDATES)
def test_an_index_that_is_one_too_large_is_found_in_every_array(name: str, emulated_gpu: EmulatedGpu) -> None:
    code = source_of(*CANDIDATES[name])
    bodies = code[code.index("{", code.rindex("extern")) :]
    arrays = sorted(set(re.findall(r"\b((?!red_|mask|t0)\w*?_ptr)(?:\[| \+ )", bodies)))
    assert len(arrays) >= 4
    for array in arrays:
        access = next(each for each in (f"*)({array} + ", f"{array}[") if each in bodies)
        first = code.count(access) - bodies.count(access)
        if not re.search(rf"alignas\(64\) float {array}\[\d+\];", bodies) or "shared" in array:
            assert is_found(emulated_gpu, name, access, f"{access}1 + ", first), array
