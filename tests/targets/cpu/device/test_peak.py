"""Peak measurements: every element of packed words counts, and page faults do not affect the copy bandwidth."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tvm

from anole.targets.cpu.device import peak
from anole.targets.cpu.device.builder import load
from anole.targets.cpu.settings import describe_cpu
from anole.targets.shared.packed_words import DOTS

from ..templates.cases import AMX_FEATURES

DTYPES = ("float32", *DOTS)
AMX = {**describe_cpu(), "features": [*describe_cpu()["features"], *AMX_FEATURES], "threads": 2}


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_step_adds_a_product(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setattr(peak, "_N_STEPS", 3)
    kernel = load(peak._schedule(peak._define(1, 4, 8, dtype)), describe_cpu(threads=1))
    factors = np.array([[2.0] * 8, np.arange(8)], dtype=peak._accumulator_dtype(dtype))
    out = tvm.runtime.tensor(np.zeros((1, 4, 8), dtype=factors.dtype))
    kernel(tvm.runtime.tensor(factors), out)
    assert (out.numpy() == 2**3 + (2**2 + 2 + 1) * factors[1]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_of_a_packed_word_counts(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setattr(peak, "load", lambda *_: lambda *_: time.sleep(0.1))
    description = describe_cpu(threads=1)
    unit, elements = peak.VectorUnit.of(description), int(tvm.DataType(dtype).lanes)
    flop = 2 * peak._N_STEPS * min(16, unit.registers - 4) * unit.lanes * elements
    assert 0.5 * flop / 0.1 < 1e9 * peak._vectors_gflops(description, dtype, seconds=0.0) <= flop / 0.1


@pytest.mark.parametrize(("dtype", "product"), [("bfloat16x2", 2), ("uint8x4", 2 * (63 * 63 - 128 * 128))])
def test_every_thread_multiplies_tiles(monkeypatch: pytest.MonkeyPatch, dtype: str, product: int) -> None:
    monkeypatch.setattr(peak, "_N_TILE_STEPS", 6)
    kernel = load(peak._multiply_tiles(2, 3, dtype), AMX)
    shapes = ((2, 16, 16), (3, 16, 32))
    operands = [tvm.runtime.tensor(np.full(shape, peak._PACKED_ONES, np.int32)) for shape in shapes]
    out = tvm.runtime.tensor(np.zeros((2, 32, 32), dtype=peak._accumulator_dtype(dtype)))
    kernel(*operands, out)
    assert (out.numpy() == 3 * 16 * product).all()


@pytest.mark.parametrize("dtype", ["bfloat16x2", "uint8x4"])
def test_the_peak_is_measured_on_tiles_if_there_are_any(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setattr(peak, "load", lambda *_: lambda *_: time.sleep(0.1))
    flop = 2 * 2 * peak._N_TILE_STEPS * 4 * 16**3 * int(tvm.DataType(dtype).lanes)
    assert 0.5 * flop / 0.1 < 1e9 * peak.peak_gflops(AMX, dtype, seconds=0.0) <= flop / 0.1


def test_the_first_copy_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    durations_s = iter([0.5])
    monkeypatch.setattr(peak, "load", lambda *_: lambda *_: time.sleep(next(durations_s, 0.0)))
    # 128 MiB are read and written.
    assert peak.copy_bytes_per_s(describe_cpu(), seconds=0.0) > 2 * (1 << 27) / 0.5
