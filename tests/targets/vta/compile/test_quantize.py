"""Quantisation: what the whole numbers of a layer mean, and that no sum of them leaves 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.targets.vta.compile.calibrate import best_exponent, observe, snr_db
from anole.targets.vta.compile.partition import Chain, Partition
from anole.targets.vta.compile.quantize import quantize
from anole.targets.vta.network.integer import IntegerReference
from anole.targets.vta.network.network import AcceleratorLayer, HostCall, Pool, float_of, run_quantized
from anole.task import Conv2d, Dense

from ....examples import examples

SHAPE = (1, 3, 3, 4)
POWERS = st.integers(-30, 30)


def chain(seed: int = 0, weight: float = 0.5, bias: float = 0.5, **changes: Any) -> Chain:
    rng = np.random.default_rng(seed)
    fields: dict[str, Any] = {"data": "x", "result": "y", "residual": None, "positive": False, "cap": None} | changes
    return Chain(
        name="layer",
        workload=Conv2d(1, 3, 3, 4, 4, (3, 3), padding=(1, 1, 1, 1)),
        weight=(weight * rng.standard_normal((3, 3, 4, 4))).astype(np.float32),
        bias=(bias * rng.standard_normal(4)).astype(np.float32),
        shape=SHAPE,
        **fields,
    )


def parts(*steps: Any, inputs: tuple[str, ...] = ("x",)) -> Partition:
    return Partition(inputs, (getattr(steps[-1], "result", ""),), steps, None)


def quantized(network: Partition, samples: Any) -> tuple[Any, Any]:
    observed = observe(network, samples, lambda *_: [])
    return observed, quantize(network, observed, lambda _: {})


def normal(scale: float, seed: int = 0) -> Any:
    return (scale * np.random.default_rng(seed).standard_normal(SHAPE)).astype(np.float32)


@settings(max_examples=examples(150), deadline=None)
@given(POWERS, POWERS, POWERS, POWERS, st.booleans(), st.booleans(), st.sampled_from([None, 0.01, 3.0]))
def test_nothing_leaves_its_bits_whatever_the_magnitudes(
    data: int, weight: int, bias: int, residual: int, has_residual: bool, positive: bool, cap: float | None
) -> None:
    step = chain(
        weight=2.0**weight,
        bias=2.0**bias,
        residual="r" if has_residual else None,
        positive=positive,
        cap=cap if positive else None,
    )
    network = parts(step, inputs=("x", "r"))
    sample = [normal(2.0**data), normal(2.0**residual, 1)]
    observed, plain = quantized(network, [sample])
    (layer,) = plain.steps
    assert isinstance(layer, AcceleratorLayer) and layer.shift >= 0
    assert layer.weight.dtype == np.int8 and layer.bias.dtype == np.int32
    assert np.abs(layer.weight.astype(int)).max() <= 127
    assert (layer.low, layer.high) == (0 if positive else -127, layer.high) and 0 <= layer.high <= 127
    # The largest sum that any data and residual can give.
    products = np.abs(layer.weight.astype(np.int64)).sum(axis=(0, 1, 2)) * 127
    added = np.abs(layer.bias.astype(np.int64)) + (1 << 29 if has_residual else 0)
    assert (products + added).max() < 1 << 31
    # What is large in the sum is not cut off, however small the rest is.
    found = float_of(run_quantized(plain, sample, None, IntegerReference())["y"])
    ratio = snr_db(observed["y"][0], found)
    assert ratio is None or ratio > 20 or step.cap is not None


def test_a_channel_of_zeros_gives_its_bias() -> None:
    step = chain()
    step.weight[..., 2] = 0
    sample = [normal(1.0)]
    observed, plain = quantized(parts(step), [sample])
    (layer,) = plain.steps
    found = float_of(run_quantized(plain, sample, None, IntegerReference())["y"])
    assert np.ptp(found[..., 2]) == 0
    assert abs(found[0, 0, 0, 2] - step.bias[2]) <= 2.0 ** (layer.result_exponent - 1)
    assert snr_db(observed["y"][0], found) > 20


@pytest.mark.parametrize(("weight", "value"), [(0.5, 0.0), (0.5, 3.0), (0.5, -1e-6), (0.0, 1.0), (0.0, 0.0)], ids=str)
def test_constant_values_and_weights_of_zero_are_no_special_case(weight: float, value: float) -> None:
    step, sample = chain(weight=weight), [np.full(SHAPE, value, np.float32)]
    observed, plain = quantized(parts(step), [sample])
    found = float_of(run_quantized(plain, sample, None, IntegerReference())["y"])
    assert np.isfinite(found).all()
    ratio = snr_db(observed["y"][0], found)
    assert ratio is None or ratio > 20


@pytest.mark.parametrize("has_residual", [False, True])
def test_a_bias_is_in_units_of_the_sum_with_half_a_unit_of_the_result(has_residual: bool) -> None:
    step = chain(residual="r" if has_residual else None)
    observed, plain = quantized(parts(step, inputs=("x", "r")), [[normal(1.0), normal(1.0, 1)]])
    (layer,) = plain.steps
    assert layer.data_exponent == best_exponent(observed["x"])
    assert layer.weight_exponent == best_exponent(step.weight)
    assert layer.result_exponent == best_exponent(observed["y"])
    assert layer.residual_exponent == (best_exponent(observed["r"]) if has_residual else 0)
    assert layer.shift == layer.result_exponent - layer.data_exponent - layer.weight_exponent > 0
    np.testing.assert_array_equal(layer.weight, np.rint(step.weight / 2.0**layer.weight_exponent))
    np.testing.assert_array_equal(layer.bias, np.rint(step.bias / 2.0**layer.sum_exponent) + 2 ** (layer.shift - 1))


@given(st.lists(st.integers(-100, 100), min_size=9, max_size=9), st.integers(1, 6))
def test_the_result_is_rounded_to_the_nearest(numbers: list[int], shift: int) -> None:
    """A layer that hands its data on with a coarser scale divides by a power of two."""
    weight = np.eye(4, dtype=np.float32)[None, None]
    data = np.array(numbers, np.float32).reshape(1, 3, 3, 1).repeat(4, axis=3)
    data[0, 0, 0] = 127
    handed = Chain(
        *("layer", Conv2d(1, 3, 3, 4, 4, (1, 1)), "x", "y", None),
        *(weight, np.zeros(4, np.float32), False, None, SHAPE),
    )
    # The result's scale follows from what is observed, here of a result that is as many times larger.
    observed = {"x": data[None], "y": np.full((1, *SHAPE), 127 * 2.0**shift, np.float32)}
    plain = quantize(parts(handed), observed, lambda _: {})
    (layer,) = plain.steps
    assert layer.result_exponent == shift
    found = run_quantized(plain, [data], None, IntegerReference())["y"].numbers
    np.testing.assert_array_equal(found, np.floor(data / 2.0**shift + 0.5))


def test_a_result_is_never_finer_than_its_sum() -> None:
    # Ones times ones are whole, while the result that is observed is nearly nothing.
    step = chain(weight=1.0, bias=0.0)
    observed = {"x": np.ones((1, *SHAPE), np.float32), "y": np.full((1, *SHAPE), 1e-9, np.float32)}
    network = parts(step, chain(data="y", result="z"))
    layer, reader = quantize(network, {**observed, "z": observed["x"]}, lambda _: {}).steps
    assert layer.shift == 0 and layer.result_exponent == layer.sum_exponent == reader.data_exponent
    assert not layer.bias.any()


@pytest.mark.parametrize(("cap", "high"), [(None, 127), (6.0, 96), (1000.0, 127)])
def test_a_cap_is_in_units_of_the_result(cap: float | None, high: int) -> None:
    step = chain(positive=True, cap=cap)
    observed = {"x": normal(1.0)[None], "y": np.linspace(0, 6, 36, dtype=np.float32).reshape(1, *SHAPE)}
    (layer,) = quantize(parts(step), observed, lambda _: {}).steps
    assert (layer.result_exponent, layer.low, layer.high) == (-4, 0, high)


def test_a_value_has_one_scale_wherever_it_is_read() -> None:
    first = chain(1, positive=True)
    pool = Pool("pool", (1, 1), (1, 1), (0, 0, 0, 0), "y", "p", 0)
    second = chain(2, data="p", result="z", residual="y")
    third = chain(3, data="z", result="end", residual="p")
    network = parts(first, pool, second, third)
    observed = observe(network, [[normal(1.0)], [normal(2.0, 5)]], lambda *_: [])
    # The largest of some windows may all be small.
    plain = quantize(network, {**observed, "p": observed["p"] / 32}, lambda _: {})
    layers = [step for step in plain.steps if isinstance(step, AcceleratorLayer)]
    (pooled,) = (step for step in plain.steps if isinstance(step, Pool))
    assert pooled.exponent == layers[0].result_exponent == layers[1].data_exponent
    assert layers[1].residual_exponent == layers[2].residual_exponent == pooled.exponent
    assert layers[2].data_exponent == layers[1].result_exponent
    assert (plain.inputs, plain.outputs) == (network.inputs, network.outputs)


def test_a_matrix_product_is_a_convolution_of_single_pixels() -> None:
    rng = np.random.default_rng(0)
    weight, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 5), (5,)))
    step = Chain("head", Dense(3, 6, 5), "x", "y", None, weight, bias, False, None, (3, 5))
    sample = [rng.standard_normal((3, 6)).astype(np.float32)]
    observed, plain = quantized(parts(step), [sample])
    (layer,) = plain.steps
    assert layer.workload == Conv2d(1, 3, 1, 6, 5, (1, 1)) and layer.weight.shape == (1, 1, 6, 5)
    found = float_of(run_quantized(plain, sample, None, IntegerReference())["y"])
    assert snr_db(observed["y"][0], found) > 30


def test_functions_of_the_host_stay_between() -> None:
    host = HostCall("host0", ("x",), ("h",))
    network = parts(host, chain(data="h"))
    observed = {name: normal(1.0)[None] for name in ("x", "h", "y")}
    plain = quantize(network, observed, lambda workload: {"of": workload})
    assert plain.steps[0] == HostCall("host0", ("x",), ("h",))
    assert plain.steps[1].config == {"of": chain().workload}
