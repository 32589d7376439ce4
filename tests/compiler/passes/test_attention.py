"""Attention reads any chain of views of its operands in place, in one kernel."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import ir, relax

from anole.compiler.lower import Choice, lower
from anole.extract.graph import workloads_of
from anole.extract.passes.attention import ATTENTION
from anole.ir.kernel_calls import calls_of
from anole.targets import get_device
from anole.targets.cpu.settings import describe_cpu

from ...extract.passes.building import module_of, random_array
from ...targets.cpu.templates.cases import tries

SHAPES = [(2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 4), (2, 3, 4, 6)]
"""The shapes of queries, keys, values and an addend."""


@st.composite
def chains(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[list[int], list[tuple[str, Any]]]:
    """Return the shape of a source, and steps that make a view of another shape of it."""
    first = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=2, max_size=4))
    steps, current = list[tuple[str, Any]](), first
    for kind in draw(st.lists(st.sampled_from(["permute", "reshape", "slice", "broadcast", "scale"]), max_size=4)):
        if kind == "permute":
            steps.append((kind, axes := draw(st.permutations(range(len(current))))))
            current = [current[axis] for axis in axes]
        elif kind == "reshape":
            cut = draw(st.integers(0, len(current) - 1))
            current = [prod(current[:cut]), 1, prod(current[cut:])]
            steps.append((kind, current))
        elif kind == "slice":
            axis = draw(st.integers(0, len(current) - 1))
            begin, stride = draw(st.integers(0, current[axis] - 1)), draw(st.integers(1, 2))
            steps.append((kind, (axis, begin, current[axis], stride)))
            current = [*current[:axis], -(-(current[axis] - begin) // stride), *current[axis + 1 :]]
        elif kind == "broadcast":
            current = [2, *(3 if extent == 1 else extent for extent in current)]
            steps.append((kind, current))
        else:
            steps.append((kind, draw(st.sampled_from([0.5, -2.0]))))
    copies = -(-prod(shape) // prod(current))
    steps += [("reshape", [prod(current)]), ("broadcast", [copies, prod(current)])]
    return first, [*steps, ("reshape", [copies * prod(current)]), ("slice", (0, 0, prod(shape), 1)), ("reshape", shape)]


def apply_to_array(array: np.ndarray, steps: list[tuple[str, Any]]) -> np.ndarray:
    for kind, how in steps:
        if kind == "slice":
            axis, begin, end, stride = how
            array = np.take(array, range(begin, end, stride), axis)
        else:
            operations = {"permute": np.transpose, "reshape": np.reshape, "broadcast": np.broadcast_to}
            array = array * np.float32(how) if kind == "scale" else operations[kind](array, how)
    return array


def apply_to_expr(builder: relax.BlockBuilder, expr: ir.Expr, steps: list[tuple[str, Any]]) -> ir.Expr:
    for kind, how in steps:
        if kind == "slice":
            axis, begin, end, stride = how
            expr = relax.op.strided_slice(expr, [axis], [begin], [end], [stride])
        elif kind == "scale":
            expr = relax.op.multiply(expr, relax.const(how))
        else:
            operations = {"permute": relax.op.permute_dims, "reshape": relax.op.reshape}
            expr = operations.get(kind, relax.op.broadcast_to)(expr, list(how))
        expr = builder.emit(expr)
    return expr


@tries(24)
@given(st.tuples(*map(chains, SHAPES)), st.permutations(range(4)))
def test_views_are_read_in_place(views: Any, axes: list[int]) -> None:
    def build(builder: relax.BlockBuilder, *sources: relax.Var) -> ir.Expr:
        operands = [apply_to_expr(builder, x, steps) for x, (_, steps) in zip(sources, views, strict=True)]
        order, masked = relax.ShapeExpr(axes), relax.const(False, "bool")
        return relax.Call(ir.Op.get(ATTENTION), [*operands[:3], order, masked, operands[3]])

    arrays = [random_array(*shape, seed=seed) for seed, (shape, _) in enumerate(views)]
    module = module_of(build, *(array.shape for array in arrays))
    target = get_device(describe_cpu(threads=1))
    (workload,) = workloads_of(module)
    choice = Choice(target.template(workload), target.default_config(workload))
    module, failures = lower(module, {workload: choice}, target.schedule_default)
    assert len(calls_of(module)) == 1 and not failures
    with target.compiler_target() as compiler_target:
        executable = tvm.compile(module, compiler_target, tir_pipeline=target.compiler_pipeline())
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](*map(tvm.runtime.tensor, arrays)).numpy()
    queries, keys, values, addend = (
        apply_to_array(array, steps).astype(np.float64) for array, (_, steps) in zip(arrays, views, strict=True)
    )
    exponentials = np.exp(queries @ keys.swapaxes(2, 3) + addend)
    expected = (exponentials / exponentials.sum(-1, keepdims=True)) @ values
    np.testing.assert_allclose(found, expected.transpose(axes), rtol=1e-4, atol=1e-5)
