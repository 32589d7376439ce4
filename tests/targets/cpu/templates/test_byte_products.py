"""Byte products of two activations equal NumPy's integer products exactly, also at the limits of the types."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import tvm
from hypothesis import given
from hypothesis import strategies as st

from anole.targets.cpu.device import builder
from anole.targets.shared.reference import data_shape, out_shape, weight_shape

from .cases import AMX, PROCESSOR, SEEDS, UNIT, UNITS, Case, byte_products, tries

LIMITS = {"data": [0, 1, 254, 255], "right": [-128, -127, 126, 127]}


@tries(40)
@given(
    case=st.builds(Case, byte_products, UNITS | st.just(UNIT) | st.just(AMX), st.integers(1, 9)),
    left=st.sampled_from([[0], [255], LIMITS["data"], range(256)]),
    right=st.sampled_from([[-128], [127], LIMITS["right"], range(-128, 128)]),
    seed=SEEDS,
)
def test_any_bytes_are_multiplied_exactly(case: Case, left: list[int], right: list[int], seed: int) -> None:
    w, config, rng = case.workload, case.random_config(seed), np.random.default_rng(seed)
    operands = rng.choice(left, data_shape(w)).astype(np.uint8), rng.choice(right, weight_shape(w)).astype(np.int8)
    found = tvm.runtime.tensor(np.full(out_shape(w), -1, np.int32))
    with TemporaryDirectory() as folder:
        builder.build(case.template, w, config, PROCESSOR, Path(folder, "kernel.so"))
        kernel = tvm.runtime.load_module(str(Path(folder, "kernel.so")))["main"]
        kernel(*map(tvm.runtime.tensor, operands), found)
    first, second = (each.astype(np.int64) for each in operands)
    np.testing.assert_array_equal(found.numpy(), first @ (second.swapaxes(1, 2) if w.transpose_right else second))
