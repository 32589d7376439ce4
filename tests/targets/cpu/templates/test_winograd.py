"""Winograd on the CPU: rounding errors are small, and its space respects the registers and the cache."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.runtime.vm import VirtualMachine

from anole.compiler.lower import Choice, lower
from anole.extract.graph import workloads_of
from anole.ir.ranges import SizeRange
from anole.ir.symbols import symbol_of
from anole.targets import get_target
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.settings import describe_cpu
from anole.targets.cpu.target import CpuTarget
from anole.targets.cpu.templates.winograd import WinogradTemplate
from anole.targets.cpu.templates.winograd_space import winograd_space
from anole.task import Conv2d

from .cases import AVX2, SEEDS, UNIT, UNITS, error_of, random_config, tries, winograd


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    ("taps", "size", "bound"), [(3, 2, 1e-6), (3, 4, 2.7e-6), (3, 6, 1.2e-5), (5, 2, 2.7e-6), (5, 4, 1e-5)]
)
def test_rounding_errors_of_large_tiles_and_many_channels_are_small(taps: int, size: int, bound: float) -> None:
    workload = Conv2d(1, 12, 12, 512, 16, (taps, taps), padding=(1, 1, 1, 1))
    config = random_config(winograd_space(UNIT, 1, workload), tile_size=size)
    assert 1e-8 < error_of(WinogradTemplate(UNIT), workload, config) < bound


def test_tiles_with_fewer_weights_are_preferred_if_memory_is_slow() -> None:
    assert winograd_space(AVX2, 2, Conv2d(1, 14, 14, 256, 256, (3, 3), padding=(1,) * 4)).best_sampled["tile_size"] == 2


RELATIVE = {"eighth", "more loads"}
"""Limits that apply only if they can be avoided."""


def exceeded_limits(unit: VectorUnit, workload: Conv2d, config: Mapping[str, Any]) -> set[str]:
    """Return the limits that a config exceeds, computed independently, except those for threads and latency."""
    tiles, register = config["tile_p"]
    vectors = config["tile_f"][2] // unit.lanes
    side, points = config["tile_size"], (config["tile_size"] + workload.kernel[0] - 1) ** 2
    apart_y, apart_x = workload.dilation
    tall, wide = -(-workload.out_height // (apart_y * side)), -(-workload.out_width // (apart_x * side))
    count = workload.batch * apart_y * apart_x * tall * wide
    held = (workload.in_channels if config["data_at"] == "parallel" else 0) + config["tile_f"][2]
    exceeded = {
        "registers": register * vectors + vectors + 1 > unit.registers,
        "half as many": -(-count // (tiles * register)) * tiles * register >= 1.5 * count,
        "cache": 4 * points * tiles * register * held > 1 << 20,
        "eighth": 8 * -(-count // (tiles * register)) * tiles * register > 9 * count,
        "more loads": register + vectors > register * vectors,
    }
    return {reason for reason, is_exceeded in exceeded.items() if is_exceeded}


@tries(60)
@given(workload=winograd, unit=UNITS, seed=SEEDS)
def test_rejected_configs_exceed_the_named_limit(workload: Conv2d, unit: VectorUnit, seed: int) -> None:
    space = winograd_space(unit, 2, workload)
    config = space.config(space.vectors(np.random.default_rng(seed).integers(0, space.size, 1))[0])
    reason, exceeded = space.rejection(config), exceeded_limits(unit, workload, config)
    if reason is None:
        assert not exceeded - RELATIVE
    elif "accumulators to hide" not in reason and "parallel chunks" not in reason:
        assert any(each in reason for each in exceeded)


@tries(30)
@given(workload=winograd, unit=UNITS, threads=st.integers(1, 9))
def test_every_tile_size_has_valid_configs(workload: Conv2d, unit: VectorUnit, threads: int) -> None:
    space = winograd_space(unit, threads, workload)
    draw = partial(random_config, space, 0)
    for size in space.knobs[0].values:
        assert space.rejection(draw(tile_size=size)) is None
    assert space.rejection(space.best_sampled) is None


@pytest.mark.parametrize("order", ["fy", "yf"])
@pytest.mark.parametrize("data_at", ["root", "parallel"])
def test_tiles_beyond_the_last_image_are_skipped(order: str, data_at: str) -> None:
    """Run one program for batches of 1 to 8; most of them end within a block of tiles."""
    target = get_target(describe_cpu())
    assert isinstance(target, CpuTarget)
    n, weight = (
        symbol_of("n", SizeRange(1, 8)),
        np.random.default_rng(0).standard_normal((3, 3, 16, 32)).astype(np.float32),
    )
    x, builder = relax.Var("x", relax.TensorType((n, 10, 10, 16), "float32")), relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_output(
                relax.op.nn.conv2d(x, relax.const(weight), padding=1, data_layout="NHWC", kernel_layout="HWIO")
            )
        builder.emit_func_output(made)
    (workload,) = workloads_of(builder.get())
    space = winograd_space(target.unit, 2, workload)
    config = random_config(space, tile_size=4, parallel_order=order, data_at=data_at)
    choice = Choice(WinogradTemplate(target.unit), config)
    module, failures = lower(builder.get(), {workload: choice}, target.schedule_default)
    assert not failures
    with target.compiler_target() as compiler_target, tvm.transform.PassContext(config=dict(target.compiler_options)):
        library = tvm.compile(module, compiler_target, tir_pipeline=target.compiler_pipeline())
    machine = VirtualMachine(library, tvm.cpu())
    for size in (1, 3, 4, 7, 8):
        images = np.random.default_rng(size).standard_normal((size, 10, 10, 16)).astype(np.float32)
        found = machine["main"](tvm.runtime.tensor(images)).numpy()
        data, kernel = torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(weight).permute(3, 2, 0, 1)
        expected = torch.conv2d(data, kernel, padding=1).permute(0, 2, 3, 1)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
