"""Quantization: the best scale of a value, and no overflow of 32-bit sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from anole.task import Conv2d
from anole_vta.compile.partition import FusedLayer, Partition
from anole_vta.compile.quantize import best_exponent, observe, quantize, snr_db
from anole_vta.network.network import MAX_VALUE, AcceleratorLayer, IntegerReference, Pool, float_of, run_quantized

from ...examples import examples

FLOATS = st.floats(-(2.0**20), 2.0**20, width=32, allow_subnormal=False)


def squared_error(values: Any, exponent: int) -> float:
    numbers = np.clip(np.rint(values.astype(np.float64) * 2.0**-exponent), -MAX_VALUE, MAX_VALUE)
    return float(np.square(numbers * 2.0**exponent - values).sum())


@given(arrays(np.float32, st.integers(1, 30), elements=FLOATS))
def test_no_other_candidate_scale_is_more_precise(values: Any) -> None:
    exponent = best_exponent(values)
    largest = float(np.abs(values).max())
    if not largest:
        assert exponent == 0
        return
    coarsest = next(e for e in range(-200, 200) if largest <= MAX_VALUE * 2.0**e)
    assert coarsest - 4 < exponent <= coarsest
    assert squared_error(values, exponent) <= min(
        squared_error(values, other) * (1 + 1e-9) + 1e-300 for other in range(coarsest - 3, coarsest + 1)
    )


@given(arrays(np.float32, st.integers(1, 30), elements=FLOATS), st.integers(-20, 20))
def test_scales_are_symmetric_and_move_with_the_values(values: Any, power: int) -> None:
    exponent = best_exponent(values)
    assert best_exponent(-values) == exponent
    if values.any():
        assert best_exponent(np.ldexp(values, power)) == exponent + power


@pytest.mark.parametrize(
    ("values", "exponent"), [([0.0], 0), ([127.0], 0), ([128.0], 1), ([1.0], -6), ([np.inf], 0), ([np.nan, 1], 0)]
)
def test_scales_of_simple_values(values: list[float], exponent: int) -> None:
    assert best_exponent(np.array(values, np.float32)) == exponent


def test_an_outlier_is_clipped_for_the_sake_of_all_others() -> None:
    many = np.linspace(-1, 1, 100_001, dtype=np.float32)
    assert best_exponent(many) == -7
    assert best_exponent(np.append(many, np.float32(2.1))) == -7
    assert best_exponent(np.append(many, np.float32(200))) > -7


def test_signal_to_noise() -> None:
    signal = np.array([3.0, 4.0], np.float32)
    assert snr_db(signal, signal) is None
    assert snr_db(np.zeros(2), signal) is None
    assert snr_db(signal, np.array([3.5, 4])) == pytest.approx(20)
    assert snr_db(signal, signal * 1.1) == pytest.approx(20, abs=1e-3)
    assert snr_db(signal, np.array([np.nan, 4])) is None and snr_db(np.array([np.inf]), np.array([1.0])) is None


SHAPE = (1, 3, 3, 4)
POWERS = st.integers(-30, 30)


def make_layer(seed: int = 0, weight: float = 0.5, bias: float = 0.5, **changes: Any) -> FusedLayer:
    rng = np.random.default_rng(seed)
    fields: dict[str, Any] = {"data": "x", "result": "y", "residual": None, "positive": False, "cap": None} | changes
    return FusedLayer(
        name="layer",
        workload=Conv2d(1, 3, 3, 4, 4, (3, 3), padding=(1, 1, 1, 1)),
        weight=(weight * rng.standard_normal((3, 3, 4, 4))).astype(np.float32),
        bias=(bias * rng.standard_normal(4)).astype(np.float32),
        shape=SHAPE,
        **fields,
    )


def parts(*steps: Any, inputs: tuple[str, ...] = ("x",)) -> Partition:
    return Partition(inputs, (getattr(steps[-1], "result", ""),), steps, None)


def quantize_step(step: FusedLayer, *sample: Any) -> tuple[AcceleratorLayer, Any, Any, float | None]:
    """Return a quantized layer, all observed values, its result, and the signal-to-noise ratio of the result."""
    network = parts(step, inputs=("x", "r")[: len(sample)])
    observed = observe(network, [sample], lambda *_: [])
    plain = quantize(network, observed, lambda _: {})
    found = float_of(run_quantized(plain, sample, None, IntegerReference())["y"])
    (layer,) = plain.steps
    assert isinstance(layer, AcceleratorLayer)
    return layer, observed, found, snr_db(observed["y"][0], found)


def normal(scale: float, seed: int = 0) -> Any:
    return (scale * np.random.default_rng(seed).standard_normal(SHAPE)).astype(np.float32)


@settings(max_examples=examples(150), deadline=None)
@given(POWERS, POWERS, POWERS, POWERS, st.booleans(), st.booleans(), st.sampled_from([None, 0.01, 3.0]))
def test_nothing_overflows_for_any_magnitudes(
    data: int, weight: int, bias: int, residual: int, has_residual: bool, positive: bool, cap: float | None
) -> None:
    step = make_layer(
        weight=2.0**weight,
        bias=2.0**bias,
        residual="r" if has_residual else None,
        positive=positive,
        cap=cap if positive else None,
    )
    layer, _, _, ratio = quantize_step(step, normal(2.0**data), normal(2.0**residual, 1))
    assert layer.shift >= 0
    assert layer.weight.dtype == np.int8 and layer.bias.dtype == np.int32
    assert np.abs(layer.weight.astype(int)).max() <= 127
    assert (layer.low, layer.high) == (0 if positive else -127, layer.high) and 0 <= layer.high <= 127
    # The largest sum for any data and residual.
    products = np.abs(layer.weight.astype(np.int64)).sum(axis=(0, 1, 2)) * 127
    added = np.abs(layer.bias.astype(np.int64)) + (1 << 29 if has_residual else 0)
    assert (products + added).max() < 1 << 31
    # Large terms of the sum are not clipped, however small the rest is.
    assert ratio is None or ratio > 20 or step.cap is not None


def test_a_channel_of_zero_weights_gives_its_bias() -> None:
    step = make_layer()
    step.weight[..., 2] = 0
    layer, _, found, ratio = quantize_step(step, normal(1.0))
    assert np.ptp(found[..., 2]) == 0
    assert abs(found[0, 0, 0, 2] - step.bias[2]) <= 2.0 ** (layer.result_exponent - 1)
    assert ratio is not None and ratio > 20


@pytest.mark.parametrize(("weight", "value"), [(0.5, 0.0), (0.5, 3.0), (0.5, -1e-6), (0.0, 1.0), (0.0, 0.0)], ids=str)
def test_constant_values_and_weights_of_zero_are_no_special_case(weight: float, value: float) -> None:
    _, _, found, ratio = quantize_step(make_layer(weight=weight), np.full(SHAPE, value, np.float32))
    assert np.isfinite(found).all() and (ratio is None or ratio > 20)


@pytest.mark.parametrize("has_residual", [False, True])
def test_a_bias_is_in_units_of_the_sum_with_half_a_unit_of_the_result(has_residual: bool) -> None:
    step = make_layer(residual="r" if has_residual else None)
    layer, observed, _, _ = quantize_step(step, normal(1.0), normal(1.0, 1))
    assert layer.data_exponent == best_exponent(observed["x"])
    assert layer.weight_exponent == best_exponent(step.weight)
    assert layer.result_exponent == best_exponent(observed["y"])
    assert layer.residual_exponent == (best_exponent(observed["r"]) if has_residual else 0)
    assert layer.shift == layer.result_exponent - layer.data_exponent - layer.weight_exponent > 0
    np.testing.assert_array_equal(layer.weight, np.rint(step.weight / 2.0**layer.weight_exponent))
    np.testing.assert_array_equal(layer.bias, np.rint(step.bias / 2.0**layer.sum_exponent) + 2 ** (layer.shift - 1))


@given(st.lists(st.integers(-100, 100), min_size=9, max_size=9), st.integers(1, 6))
def test_the_result_is_rounded_to_the_nearest(numbers: list[int], shift: int) -> None:
    """An identity layer with a coarser result scale divides by a power of two."""
    weight = np.eye(4, dtype=np.float32)[None, None]
    data = np.array(numbers, np.float32).reshape(1, 3, 3, 1).repeat(4, axis=3)
    data[0, 0, 0] = 127
    handed = FusedLayer(
        *("layer", Conv2d(1, 3, 3, 4, 4, (1, 1)), "x", "y", None),
        *(weight, np.zeros(4, np.float32), False, None, SHAPE),
    )
    # The result's scale follows from the observed values, here from a result larger by this factor.
    observed = {"x": data[None], "y": np.full((1, *SHAPE), 127 * 2.0**shift, np.float32)}
    plain = quantize(parts(handed), observed, lambda _: {})
    (layer,) = plain.steps
    assert layer.result_exponent == shift
    found = run_quantized(plain, [data], None, IntegerReference())["y"].numbers
    np.testing.assert_array_equal(found, np.floor(data / 2.0**shift + 0.5))


def test_a_result_is_never_finer_than_its_sum() -> None:
    # Ones times ones are integers, while the observed result is nearly zero.
    step = make_layer(weight=1.0, bias=0.0)
    observed = {"x": np.ones((1, *SHAPE), np.float32), "y": np.full((1, *SHAPE), 1e-9, np.float32)}
    network = parts(step, make_layer(data="y", result="z"))
    layer, reader = quantize(network, {**observed, "z": observed["x"]}, lambda _: {}).steps
    assert layer.shift == 0 and layer.result_exponent == layer.sum_exponent == reader.data_exponent
    assert not layer.bias.any()


@pytest.mark.parametrize(("cap", "high"), [(None, 127), (6.0, 96), (1000.0, 127)])
def test_a_cap_is_in_units_of_the_result(cap: float | None, high: int) -> None:
    step = make_layer(positive=True, cap=cap)
    observed = {"x": normal(1.0)[None], "y": np.linspace(0, 6, 36, dtype=np.float32).reshape(1, *SHAPE)}
    (layer,) = quantize(parts(step), observed, lambda _: {}).steps
    assert (layer.result_exponent, layer.low, layer.high) == (-4, 0, high)


def test_a_value_has_one_scale_wherever_it_is_read() -> None:
    first = make_layer(1, positive=True)
    pool = Pool("pool", (1, 1), (1, 1), (0, 0, 0, 0), "y", "p", 0)
    second = make_layer(2, data="p", result="z", residual="y")
    third = make_layer(3, data="z", result="end", residual="p")
    network = parts(first, pool, second, third)
    observed = observe(network, [[normal(1.0)], [normal(2.0, 5)]], lambda *_: [])
    # All maxima of windows may be small.
    plain = quantize(network, {**observed, "p": observed["p"] / 32}, lambda _: {})
    layers = [step for step in plain.steps if isinstance(step, AcceleratorLayer)]
    (pooled,) = (step for step in plain.steps if isinstance(step, Pool))
    assert pooled.exponent == layers[0].result_exponent == layers[1].data_exponent
    assert layers[1].residual_exponent == layers[2].residual_exponent == pooled.exponent
    assert layers[2].data_exponent == layers[1].result_exponent
    assert (plain.inputs, plain.outputs) == (network.inputs, network.outputs)
