"""The reference of whole numbers, against loops that are obviously right."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.targets.vta.network.integer import IntegerReference
from anole.targets.vta.network.network import run_quantized

from ....examples import examples


def by_hand(layer, data, residual):
    """Returns a layer's result, number by number, in Python's own whole numbers."""
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
            # Python rounds down where it divides.
            own = int(residual[n, i, j, o])
            own = own * 2**distance if distance >= 0 else own // 2**-distance
            total += max(-(2**29), min(2**29, own))
        total //= 2 ** (layer.result_exponent - layer.data_exponent - layer.weight_exponent)
        out[n, i, j, o] = max(layer.low, min(layer.high, total))
    return out


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_a_layer_is_what_a_loop_computes(tiny_layers, data):
    case = data.draw(tiny_layers)
    numbers = [value.numbers for value in case.inputs]
    (found,) = (
        run_quantized(case.network, case.inputs, None, IntegerReference())[name] for name in case.network.outputs
    )
    expected = by_hand(case.step, numbers[0], numbers[1] if len(numbers) > 1 else None)
    np.testing.assert_array_equal(found.numbers, expected)


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_a_pooling_is_the_largest_of_each_window(pools, data):
    case = data.draw(pools)
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
