"""Quantized values, how steps pass them on, and the integer reference against plain loops."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.task import Conv2d
from anole_vta.geometry import Geometry
from anole_vta.network.network import (
    AcceleratorLayer,
    HostCall,
    IntegerReference,
    Pool,
    Quantized,
    QuantizedNetwork,
    float_of,
    integers_of,
    run_quantized,
)

from ...examples import examples
from ..conftest import layer_cases, pool_cases

INT8 = st.integers(-127, 127)


def make_quantized(*numbers, exponent=0):
    return Quantized(np.array(numbers, np.int8), exponent)


@given(st.lists(INT8, min_size=1), st.integers(-40, 40))
def test_a_value_survives_the_round_trip_through_floating_point(numbers, exponent):
    value = make_quantized(*numbers, exponent=exponent)
    assert float_of(value).dtype == np.float32
    assert integers_of(float_of(value), exponent).tolist() == numbers
    assert integers_of(value, exponent) is value.numbers


@given(st.lists(INT8, min_size=1), st.integers(1, 7))
def test_a_coarser_scale_rounds_to_the_nearest_and_a_finer_one_clips(numbers, distance):
    value = make_quantized(*numbers)
    assert integers_of(value, distance).tolist() == [round(number / 2**distance) for number in numbers]
    finer = integers_of(value, -distance).tolist()
    assert finer == [max(-127, min(127, number << distance)) for number in numbers]


def test_floating_point_is_rounded_to_the_nearest_ties_to_even_and_clipped():
    values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.74, 1e30, -1e30, 200], np.float32)
    assert integers_of(values, 0).tolist() == [0, 2, 2, 0, -2, 1, 127, -127, 127]
    assert integers_of(values, -1).tolist() == [1, 3, 5, -1, -3, 1, 127, -127, 127]


def pointwise(result="y", shape=(1, 2, 2, 2)):
    """Return an identity layer with two channels."""
    return AcceleratorLayer(
        *("layer", Conv2d(1, 2, 2, 2, 2, (1, 1)), {}, "x", result, None, 0, 0, 0, 0, -127, 127, shape),
        *(np.eye(2, dtype=np.int8)[None, None], np.zeros(2, np.int32)),
    )


def run(step, value):
    return run_quantized(QuantizedNetwork(("x",), ("y",), (step,)), [value], None, IntegerReference())["y"].numbers


def test_data_and_result_have_the_networks_shapes():
    assert run(pointwise(shape=(4, 2)), make_quantized(*range(8))).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_inputs_of_a_layer_are_converted_to_its_scale():
    assert (run(pointwise(), np.full((1, 2, 2, 2), 2.6, np.float32)) == 3).all()
    assert (run(pointwise(), Quantized(np.full((1, 2, 2, 2), 5, np.int8), -1)) == 2).all()


def test_steps_read_results_of_earlier_steps():
    calls = []

    def host(function, arguments):
        calls.append((function, [array.tolist() for array in arguments]))
        return [arguments[0] * 2, arguments[0].sum(keepdims=True)]

    steps = (
        pointwise("a"),
        Pool("pool", (2, 2), (1, 1), (0, 0, 0, 0), "a", "b", 0),
        HostCall("twice", ("b",), ("c", "d")),
        HostCall("thrice", ("d", "x"), ("e", "f")),
    )
    inputs = [np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)]
    values = run_quantized(QuantizedNetwork(("x",), ("f",), steps), inputs, host, IntegerReference())
    assert [name for name, _ in calls] == ["twice", "thrice"]
    assert calls[0][1] == [[[[[6.0, 7.0]]]]] and calls[1][1][0] == [[[[13.0]]]]
    assert list(values) == ["x", "a", "b", "c", "d", "e", "f"]
    assert (values["b"].exponent, values["b"].numbers.ravel().tolist()) == (0, [6, 7])


def by_loop(layer, data, residual):
    """Return the result of a layer, element by element, in Python integers."""
    w = layer.workload
    out = np.zeros((w.batch, w.out_height, w.out_width, w.out_channels), np.int8)
    for n, i, j, o in itertools.product(*map(range, out.shape)):
        total = int(layer.bias[o])
        for a, b, c in itertools.product(range(w.kernel[0]), range(w.kernel[1]), range(w.in_channels)):
            y, x = i * w.strides[0] - w.padding[0] + a, j * w.strides[1] - w.padding[1] + b
            if 0 <= y < w.height and 0 <= x < w.width:
                total += int(data[n, y, x, c]) * int(layer.weight[a, b, c, o])
        if residual is not None:
            distance = layer.residual_exponent - layer.data_exponent - layer.weight_exponent
            # Python's integer division rounds down.
            own = int(residual[n, i, j, o])
            own = own * 2**distance if distance >= 0 else own // 2**-distance
            total += max(-(2**29), min(2**29, own))
        total //= 2 ** (layer.result_exponent - layer.data_exponent - layer.weight_exponent)
        out[n, i, j, o] = max(layer.low, min(layer.high, total))
    return out


@settings(max_examples=examples(40), deadline=None)
@given(layer_cases([Geometry(block_in=4, block_out=4, inp_bytes=1 << 10, wgt_bytes=1 << 10, acc_bytes=1 << 10)], 4))
def test_a_layer_matches_a_loop(case):
    numbers = [value.numbers for value in case.inputs]
    (found,) = (
        run_quantized(case.network, case.inputs, None, IntegerReference())[name] for name in case.network.outputs
    )
    expected = by_loop(case.step, numbers[0], numbers[1] if len(numbers) > 1 else None)
    np.testing.assert_array_equal(found.numbers, expected)


@settings(max_examples=examples(40), deadline=None)
@given(pool_cases())
def test_a_pooling_is_the_maximum_of_each_window(case):
    pool, numbers = case.step, case.inputs[0].numbers
    top, left, bottom, right = pool.padding
    wide = np.pad(numbers.astype(int), ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=-999)
    found = IntegerReference().pool(pool, numbers)
    for i, j in itertools.product(range(found.shape[1]), range(found.shape[2])):
        y, x = i * pool.strides[0], j * pool.strides[1]
        window = wide[:, y : y + pool.kernel[0], x : x + pool.kernel[1]]
        np.testing.assert_array_equal(found[:, i, j], window.max(axis=(1, 2)))
    assert found.shape[1:3] == tuple(
        (extent - size) // step + 1
        for extent, size, step in zip(wide.shape[1:3], pool.kernel, pool.strides, strict=True)
    )
