"""The default schedule never changes the result of a function; it adds threads and vectors where that pays."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te, tirx, topi

from anole.ir.nodes import collect
from anole.targets.cpu.default.loop_nests import Machine, even_width
from anole.targets.cpu.default.schedule import schedule_default
from anole.targets.cpu.device.lowering import pipeline

from ....examples import examples

MACHINE = Machine(threads=2, vector_bytes=32)
TARGET = tvm.target.Target({"kind": "llvm"})

PARALLEL, VECTORIZED = tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED

Definition = Callable[..., te.Tensor]


def function(definition: Definition, *shapes: tuple[int, ...]) -> tirx.PrimFunc:
    inputs = [te.placeholder(shape, name=f"input{i}") for i, shape in enumerate(shapes)]
    return te.create_prim_func([*inputs, definition(*inputs)])


def run(func: tirx.PrimFunc) -> np.ndarray:
    """Run a function on fixed random inputs, with an output filled with NaN, and return the output."""
    rng = np.random.default_rng(0)
    shapes = [tuple(int(extent) for extent in param.ty.shape) for param in func.params]
    arrays = [rng.standard_normal(shape).astype(str(p.ty.dtype)) for shape, p in zip(shapes, func.params, strict=True)]
    if arrays[-1].dtype.kind == "f":
        arrays[-1][...] = np.nan
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    tvm.compile(module, TARGET, tir_pipeline=pipeline())["main"](*tensors)
    return tensors[-1].numpy()


def check(func: tirx.PrimFunc, machine: Machine = MACHINE) -> tirx.PrimFunc:
    """Assert that a function's default schedule computes the same result; return the scheduled function."""
    scheduled = schedule_default(func, machine)
    expected = run(func)
    scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
    np.testing.assert_allclose(run(scheduled), expected, rtol=2e-4, atol=2e-4 * scale)
    return scheduled


def loop_kinds(func: tirx.PrimFunc) -> set[int]:
    return {int(loop.kind) for loop in collect(func.body, tirx.For)}


def pool(mode: str, layout: str, ceil: bool = False, count_pad: bool = False) -> Definition:
    window = ((3, 3), (2, 2), (1, 1), (1, 1, 1, 1))
    return lambda x: topi.nn.pool2d(x, *window, mode, ceil_mode=ceil, layout=layout, count_include_pad=count_pad)


def mean(axes: tuple[int, ...]) -> Definition:
    def definition(x: te.Tensor) -> te.Tensor:
        total = topi.sum(x, axes, keepdims=True)
        count = prod(int(x.shape[axis]) for axis in axes)
        return te.compute(total.shape, lambda *i: total(*i) / tirx.const(count, "float32"), name="mean")

    return definition


LARGE: dict[str, tuple[Definition, tuple[tuple[int, ...], ...]]] = {
    "relu": (topi.nn.relu, ((1, 28, 28, 64),)),
    "bias_relu": (lambda x, b: topi.nn.relu(topi.add(x, b)), ((1, 28, 28, 64), (1, 1, 1, 64))),
    "bias_nchw": (lambda x, b: topi.nn.relu(topi.add(x, b)), ((1, 64, 19, 19), (1, 64, 1, 1))),
    "odd_length": (topi.nn.relu, ((20011,),)),
    "transpose": (lambda x: topi.transpose(x, (0, 2, 3, 1)), ((1, 32, 28, 28),)),
    "transpose_back": (lambda x: topi.transpose(x, (0, 3, 1, 2)), ((1, 28, 28, 32),)),
    "max_pool_nhwc": (pool("max", "NHWC"), ((1, 33, 33, 48),)),
    "max_pool_ceil": (pool("max", "NHWC", ceil=True), ((1, 32, 32, 48),)),
    "max_pool_nchw": (pool("max", "NCHW"), ((1, 48, 33, 33),)),
    "avg_pool_nhwc": (pool("avg", "NHWC"), ((1, 33, 33, 48),)),
    "avg_pool_nhwc_pad": (pool("avg", "NHWC", count_pad=True), ((1, 33, 33, 48),)),
    "global_mean_nhwc": (mean((1, 2)), ((1, 13, 13, 1000),)),
    "global_mean_nchw": (mean((2, 3)), ((1, 500, 7, 7),)),
    "softmax": (topi.nn.softmax, ((100, 197),)),
    "fast_softmax": (topi.nn.fast_softmax, ((100, 256),)),
    "log_softmax": (topi.nn.log_softmax, ((100, 197),)),
    "layer_norm": (lambda x, g, b: topi.nn.layer_norm(x, g, b, [1]), ((100, 384), (384,), (384,))),
    "group_norm": (lambda x, g, b: topi.nn.group_norm(x, g, b, 4, 3, [1, 2]), ((1, 28, 28, 32), (32,), (32,))),
    "instance_norm": (lambda x, g, b: topi.nn.instance_norm(x, g, b, 1, [2, 3]), ((1, 32, 28, 28), (32,), (32,))),
    "odd_channels": (lambda x, y: topi.add(topi.clip(x, -1, 1), y), ((1, 28, 28, 36), (1, 28, 28, 36))),
    "sum_last": (lambda x: topi.sum(x, 1), ((100, 1000),)),
    "sum_first": (lambda x: topi.sum(x, 0), ((100, 1000),)),
    "sum_middle": (lambda x: topi.sum(x, 1), ((10, 50, 100),)),
    "sum_all": (lambda x: topi.sum(x), ((40, 1000),)),
    "max_last": (lambda x: topi.max(x, 1), ((101, 1001),)),
    "matmul": (topi.nn.matmul, ((50, 64), (64, 70))),
    "batch_matmul": (topi.nn.batch_matmul, ((2, 50, 64), (2, 40, 64))),
    "conv2d_nchw": (lambda x, w: topi.nn.conv2d_nchw(x, w, 1, 1, 1), ((1, 8, 20, 20), (16, 8, 3, 3))),
    "depthwise": (
        lambda x, w: topi.nn.depthwise_conv2d_nhwc(x, w, (1, 1), (1, 1), (1, 1)),
        ((1, 20, 20, 40), (3, 3, 40, 1)),
    ),
    "deconvolution": (
        lambda x, w: topi.nn.conv2d_transpose_nchw(x, w, (2, 2), (1, 1), "float32", (0, 0)),
        ((1, 8, 14, 14), (8, 8, 4, 4)),
    ),
    "resize": (
        lambda x: topi.image.resize2d(x, [0.0] * 4, (40, 40), layout="NHWC", method="linear"),
        ((1, 20, 20, 24),),
    ),
    "concat": (lambda x, y: topi.concatenate([x, y], 3), ((1, 28, 28, 24), (1, 28, 28, 40))),
    "slice": (lambda x: topi.strided_slice(x, [0, 1, 2, 3], [1, 27, 28, 63]), ((1, 28, 28, 64),)),
    "pad": (lambda x: topi.nn.pad(x, (0, 1, 1, 0), (0, 1, 1, 0)), ((1, 28, 28, 40),)),
}


ROWS: dict[str, tuple[Definition, tuple[tuple[int, ...], ...]]] = {
    "fast_softmax_square": (topi.nn.fast_softmax, ((128, 128),)),
    "softmax_full_vectors": (topi.nn.softmax, ((100, 256),)),
    "fast_softmax_three_axes": (topi.nn.fast_softmax, ((8, 64, 40),)),
    "log_softmax_full_vectors": (topi.nn.log_softmax, ((120, 200),)),
    "layer_norm_rows": (lambda x, g, b: topi.nn.layer_norm(x, g, b, [1]), ((100, 384), (384,), (384,))),
    "layer_norm_three_axes": (lambda x, g, b: topi.nn.layer_norm(x, g, b, [2]), ((3, 50, 136), (136,), (136,))),
    "fast_softmax_padded": (topi.nn.fast_softmax, ((2, 50, 197),)),
    "log_softmax_padded": (topi.nn.log_softmax, ((197, 197),)),
    "masked_softmax_padded": (lambda x, m: topi.nn.softmax(topi.add(x, m)), ((4, 77, 77), (77, 77))),
    "layer_norm_padded": (lambda x, g, b: topi.nn.layer_norm(x, g, b, [1]), ((100, 349), (349,), (349,))),
}
"""Functions with several passes over each row, which are scheduled as one parallel loop over rows."""


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.examples(4)
def test_large_functions_are_parallel_vectorized_and_correct(name: str) -> None:
    definition, shapes = LARGE[name]
    assert loop_kinds(check(function(definition, *shapes))) >= {PARALLEL, VECTORIZED}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.examples(3)
def test_functions_with_several_passes_run_row_by_row(name: str) -> None:
    definition, shapes = ROWS[name]
    assert check(function(definition, *shapes)).script().count("T.parallel(") == 1


@pytest.mark.parametrize(
    ("definition", "shape", "kinds"),
    [
        # Rows that threads cannot share, short rows, and reductions along columns.
        *((lambda x: topi.nn.softmax(x, -1), shape, {PARALLEL, VECTORIZED}) for shape in ((3, 40000), (20, 30, 1))),
        (lambda x: topi.nn.softmax(x, -1), (6, 8), {VECTORIZED}),
        (lambda x: topi.nn.softmax(x, 1), (10, 64, 48), {PARALLEL, VECTORIZED}),
        # The channels of an image, which are interleaved.
        (lambda x: topi.transpose(x, (0, 2, 3, 1)), (1, 3, 96, 96), {PARALLEL}),
        (topi.nn.relu, (1, 1000), {VECTORIZED}),
        # Two results in one block: the position and the value of the largest element.
        (lambda x: topi.argmax(x, 1), (101, 1001), {PARALLEL, VECTORIZED}),
        (lambda x: topi.cumsum(x, 1), (64, 512), {PARALLEL}),
        # A reduction of an entire tensor with several axes.
        (lambda x: topi.max(x, [0, 1, 2, 3]), (1, 32, 80, 24), {PARALLEL, VECTORIZED}),
    ],
)
def test_other_functions_are_correct_and_use_threads_where_that_pays(
    definition: Definition, shape: tuple[int, ...], kinds: set[int]
) -> None:
    assert loop_kinds(check(function(definition, shape))) & {PARALLEL, VECTORIZED} == kinds


@pytest.mark.examples(1)
@pytest.mark.parametrize("machine", [Machine(1, 16), Machine(2, 64), Machine(7, 32)])
def test_functions_are_correct_for_other_machines(machine: Machine) -> None:
    for name in ("max_pool_nhwc", "global_mean_nhwc", "sum_all", "softmax", "transpose"):
        definition, shapes = LARGE[name]
        check(function(definition, *shapes), machine)


@pytest.mark.parametrize(("definition", "widths"), [(pool("max", "NHWC"), {16}), (mean((1, 2)), {24})])
def test_accumulators_between_conditions_are_a_power_of_two_wide(definition: Definition, widths: set[int]) -> None:
    loops = collect(schedule_default(function(definition, (1, 33, 33, 48)), MACHINE).body, tirx.For)
    assert {int(loop.extent) for loop in loops if loop.kind == VECTORIZED} == widths


@given(st.integers(1, 3000), st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 4), st.booleans())
def test_vector_width_fits(extent: int, lanes: int, wide: int, powers_only: bool) -> None:
    width = even_width(extent, lanes * wide, lanes, powers_only=powers_only)
    assert 1 <= width <= extent and width <= max(lanes * wide, lanes)
    assert not powers_only or width == extent or (width & (width - 1)) == 0


EXTENTS = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 24, 31, 32, 40, 50, 64, 67])
UNARY: dict[str, Definition] = {
    "relu": topi.nn.relu,
    "exp": topi.fast_exp,
    "tanh": topi.tanh,
    "double": lambda x: topi.add(x, x),
}


@st.composite
def graphs(draw: st.DrawFn) -> tirx.PrimFunc:
    """Return a random chain of elementwise, broadcast, transpose, pad, pool, reduce and flatten operators."""
    shape = tuple(draw(EXTENTS) for _ in range(draw(st.integers(1, 4))))
    while prod(shape) > 40000:
        shape = tuple(max(1, extent // 2) for extent in shape)
    inputs = [te.placeholder(shape, name="x")]
    value: te.Tensor = inputs[0]
    for step in range(draw(st.integers(1, 4))):
        ndim = len(value.shape)
        kind = draw(
            st.sampled_from(["unary", "broadcast", "residual", "transpose", "pad", "pool", "reduce", "flatten"])
        )
        if kind == "unary":
            value = UNARY[draw(st.sampled_from(sorted(UNARY)))](value)
        elif kind == "broadcast":
            own = [draw(st.sampled_from([int(extent), 1])) for extent in value.shape]
            inputs.append(te.placeholder(own, name=f"b{step}"))
            value = topi.add(value, inputs[-1])
        elif kind == "residual":
            inputs.append(te.placeholder(value.shape, name=f"r{step}"))
            value = topi.multiply(inputs[-1], value)
        elif kind == "transpose" and ndim > 1:
            value = topi.transpose(value, draw(st.permutations(range(ndim))))
        elif kind == "pad":
            before = [draw(st.integers(0, 1)) for _ in range(ndim)]
            value = topi.nn.pad(value, before, [draw(st.integers(0, 1)) for _ in range(ndim)])
        elif kind == "pool" and ndim == 4:
            layout, mode = draw(st.sampled_from(["NCHW", "NHWC"])), draw(st.sampled_from(["max", "avg"]))
            value = pool(mode, layout)(value)
        elif kind == "reduce":
            axes = draw(st.sets(st.integers(0, ndim - 1), min_size=1, max_size=ndim))
            reduce = draw(st.sampled_from([topi.sum, topi.max]))
            value = reduce(value, tuple(sorted(axes)), keepdims=draw(st.booleans()) or len(axes) == ndim)
        elif kind == "flatten":
            value = topi.reshape(value, (prod(int(extent) for extent in value.shape),))
    if value is inputs[0]:
        value = topi.nn.relu(value)
    return te.create_prim_func([*inputs, value])


@settings(max_examples=examples(60), deadline=None)
@given(graphs(), st.sampled_from([Machine(2, 64), Machine(2, 16), Machine(3, 32)]))
def test_random_graphs_keep_their_results(func: tirx.PrimFunc, machine: Machine) -> None:
    check(func, machine)
