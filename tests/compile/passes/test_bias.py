"""What is loaded together with a bias is zero."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from anole.compile.passes.bias import legalize_add

from ...extract.passes.building import calls, drawn, module_of, run


def sum_with(bias: np.ndarray, *shape: int) -> tvm.IRModule:
    module = module_of(lambda _, x: relax.op.add(x, relax.const(bias)), shape)
    return relax.transform.LegalizeOps({"relax.add": legalize_add})(module)


def added(module: tvm.IRModule) -> np.ndarray:
    """Returns the constant that the only kernel is called with."""
    (call,) = calls(module)
    return call.args[1].fields[1].value.numpy()


@pytest.mark.parametrize("shape", [(6,), (1, 1, 1, 6)])
def test_the_rest_of_a_register_is_zero(shape: tuple[int, ...]) -> None:
    bias = np.arange(1, 7, dtype="float32").reshape(shape)
    data = np.ones((1, 5, 4, 6), dtype="float32")
    module = sum_with(bias, *data.shape)
    np.testing.assert_array_equal(added(module), [1, 2, 3, 4, 5, 6, *10 * [0]])
    np.testing.assert_array_equal(run(module, data), data + bias)


@pytest.mark.parametrize(
    ("bias_shape", "shape"),
    [
        pytest.param((16,), (1, 5, 4, 16), id="of a whole register"),
        pytest.param((5, 4, 6), (1, 5, 4, 6), id="one for each pixel"),
        pytest.param((1,), (1, 5, 4, 6), id="one for all"),
        pytest.param((6,), (1, 5, 4, 1), id="data is spread over it"),
    ],
)
def test_what_is_no_bias_of_few_channels_stays(bias_shape: tuple[int, ...], shape: tuple[int, ...]) -> None:
    bias, data = drawn(*bias_shape), np.ones(shape, dtype="float32")
    module = sum_with(bias, *shape)
    assert added(module).shape == bias_shape
    np.testing.assert_array_equal(run(module, data), data + bias)
