"""Helpers to build, inspect and run small Relax functions, and to compare them with torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax

from anole.config.entries import ModelSpec
from anole.extract.load import load_model
from anole.extract.torch import example_inputs, make_network, run_network
from anole.ir.convolutions import CHANNELS_LAST
from anole.ir.mutators import bindings

Build = Callable[..., ir.Expr]
"""A function from a block builder and the operands to the result."""


def module_of(build: Build, *shapes: Sequence[int]) -> tvm.IRModule:
    """Build a module with a function of float32 operands with these shapes."""
    operands = [relax.Var(f"x{at}", relax.TensorType(shape, "float32")) for at, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", operands):
        with builder.dataflow():
            result = builder.emit_output(build(builder, *operands))
        builder.emit_func_output(result)
    return relax.transform.Normalize()(builder.get())


def network(build: Callable[..., ir.Expr], *shapes: Sequence[int]) -> tvm.IRModule:
    """Build a module as `module_of` does, from a function that needs no block builder."""
    return module_of(lambda _, *operands: build(*operands), *shapes)


def assert_rewritten(
    change: Callable[[tvm.IRModule], tvm.IRModule],
    before: Callable[..., ir.Expr] | tvm.IRModule,
    *data: np.ndarray,
    left: list[str] | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-5,
) -> tvm.IRModule:
    """Assert that a pass preserves a network's result and leaves these operators; return the new network."""
    before = before if isinstance(before, tvm.IRModule) else network(before, *(each.shape for each in data))
    after = change(before)
    assert left is None or operators(after) == left
    plain = [relax.transform.DecomposeOpsForInference()(module) for module in (after, before)]
    np.testing.assert_allclose(*(run(module, *data) for module in plain), rtol=rtol, atol=atol)
    return after


def calls(module: tvm.IRModule) -> list[ir.Call]:
    """Return all calls in order."""
    return [binding.value for binding in bindings(module["main"]) if isinstance(binding.value, ir.Call)]


def operators(module: tvm.IRModule) -> list[str]:
    """Return the names of the called operators in order, without namespaces."""
    return [call.op.name.rpartition(".")[2] for call in calls(module)]


def run(module: tvm.IRModule, *operands: np.ndarray) -> np.ndarray:
    """Run a function with one output."""
    (found,) = outputs(module, *operands)
    return found


def outputs(module: tvm.IRModule, *operands: np.ndarray) -> list[np.ndarray]:
    """Run a function, and return its outputs."""
    executable = tvm.compile(module, tvm.target.Target("llvm"))
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](*map(tvm.runtime.tensor, operands))
    return [each.numpy() for each in ([found] if isinstance(found, tvm.runtime.Tensor) else found)]


def conv2d(data: ir.Expr, *kernel: int, seed: int = 1, **attributes: Any) -> ir.Expr:
    """Return an NHWC convolution with random weights of shape `kernel`."""
    return relax.op.nn.conv2d(data, constant(*kernel, seed=seed), **CHANNELS_LAST, **attributes)


def constant(*shape: int, seed: int = 1) -> ir.Expr:
    """Return a constant of normally distributed values."""
    return relax.const(random_array(*shape, seed=seed))


def random_array(*shape: int, seed: int = 0) -> np.ndarray:
    """Return normally distributed values."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def assert_same_as_torch(model: ModelSpec, atol: float = 1e-5) -> None:
    """Assert that an extracted torch model has the same outputs as the model, with the same dtypes."""
    arguments = example_inputs(model)
    found = outputs(load_model(model).module, *(argument.numpy() for argument in arguments.values()))
    expected = [output.numpy() for output in run_network(model, make_network(model), arguments)]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=atol)
        assert one.dtype == other.dtype
