"""Products of two computed 8-bit operands are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tvm import ir, relax

from anole.errors import ExtractError
from anole.extract.graph import workload_of
from anole.extract.passes.exact_sums import split_sums
from anole.extract.passes.low_precision import lower_precision
from anole.ir.normalize_products import transposed_product
from anole.ir.ranges import SizeRange
from anole.ir.symbols import symbol_of
from anole.task import BatchMatmul

from ...examples import examples
from .building import calls, module_of, run
from .test_low_precision import scalar, to_uint8

SIZES = st.integers(1, 9)
MINIMA, ZEROS = st.sampled_from([0, -128]), st.integers(0, 255)


def center(builder: relax.BlockBuilder, x: ir.Expr, minimum: int, zero: int) -> ir.Expr:
    clipped = builder.emit(relax.op.clip(builder.emit(relax.op.round(x)), minimum, minimum + 255))
    return builder.emit(relax.op.subtract(clipped, scalar(minimum + zero)))


def integers(seed: int, shape: tuple[int, ...], minimum: int) -> NDArray[np.float32]:
    """Return integers, many of them at an end of the range or beyond it."""
    rng = np.random.default_rng(seed)
    return rng.choice([*range(256), *[-9] * 99, *[300] * 99], shape).astype(np.float32) + np.float32(minimum)


@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck), deadline=None)
@given(
    batch=st.sampled_from([(), (1,), (2,), (2, 3)]), sizes=st.tuples(SIZES, st.integers(1, 40), SIZES),
    minimum=st.tuples(MINIMA, MINIMA), zeros=st.tuples(ZEROS | st.just(0), ZEROS | st.just(128)),
    is_transposed=st.booleans(), varies=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_products_are_exact_for_all_dtypes_and_zero_points(
    batch: tuple[int, ...],
    sizes: tuple[int, int, int],
    minimum: tuple[int, int],
    zeros: tuple[int, int],
    is_transposed: bool,
    varies: bool,
    seed: int,
) -> None:
    def shapes_of(rows: Any, inner: Any, columns: Any) -> tuple[Any, Any]:
        return (*batch, rows, inner), (*batch, *((columns, inner) if is_transposed else (inner, columns)))

    inner, shapes = sizes[1], shapes_of(*sizes)
    names = ("rows", "inner", "columns")
    symbols = [symbol_of(name, SizeRange(size, size + 1)) for name, size in zip(names, sizes, strict=True)]
    operands = [integers(seed + index, *each) for index, each in enumerate(zip(shapes, minimum, strict=True))]

    def build(builder: relax.BlockBuilder, x: ir.Expr, y: ir.Expr) -> ir.Expr:
        left, right = (center(builder, *each) for each in zip((x, y), minimum, zeros, strict=True))
        if not is_transposed:
            return relax.op.matmul(left, right, out_dtype="int32")
        return relax.op.astype(builder.emit(transposed_product(left, right)), "int32")

    module = module_of(build, *(shapes_of(*symbols) if varies else shapes))
    after = lower_precision(module, workload_of, to_uint8)
    found = [workload for call in calls(after) if (workload := workload_of(call)) is not None]
    assert [(each.dtype, each.inner) for each in found if isinstance(each, BatchMatmul)] == [
        ("uint8", -(-inner // 4) * 4)
    ]
    centered_values: Any = [
        np.clip(each, low, low + 255).astype(np.int64) - low - zero
        for each, low, zero in zip(operands, minimum, zeros, strict=True)
    ]
    expected = centered_values[0] @ (centered_values[1].swapaxes(-1, -2) if is_transposed else centered_values[1])
    np.testing.assert_array_equal(run(after, *operands), expected)


def uint8_product(inner: Any) -> tvm.IRModule:
    def build(builder: relax.BlockBuilder, x: ir.Expr, y: ir.Expr) -> ir.Expr:
        return relax.op.matmul(center(builder, x, 0, 0), center(builder, y, 0, 0), out_dtype="int32")

    return module_of(build, (1, inner), (inner, 1))


@pytest.mark.parametrize(("limit", "dtype"), [(33_025, "uint8"), (33_026, "float32")])
def test_sums_beyond_int32_stay_in_float32(limit: int, dtype: str) -> None:
    """int32 holds sums of up to 33,025 products of 255 and 255; of a dynamic extent, the maximum counts."""
    for inner in (limit, symbol_of("inner", SizeRange(1, limit))):
        after = lower_precision(uint8_product(inner), workload_of, to_uint8)
        assert [each.dtype for call in calls(after) if (each := workload_of(call))] == [dtype]


def test_dynamic_sums_beyond_float32_are_rejected() -> None:
    """A dynamic sum cannot be split; a product is at most 255 * 255, and sums of up to 258 products are exact."""
    module = uint8_product(symbol_of("inner", SizeRange(1, 258)))
    assert split_sums(module) is module
    message = r"sums of up to 259 terms; .* at most 258 terms are exact in float32"
    with pytest.raises(ExtractError, match=message):
        split_sums(uint8_product(symbol_of("inner", SizeRange(1, 259))))
