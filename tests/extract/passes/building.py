"""Small functions in Relax: built from their operands, looked into, run, and compared with torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import ir, relax

from anole.declared.entries import ModelSpec
from anole.extract.load import load_model
from anole.extract.torch import example_inputs, make_network, run_network

Build = Callable[..., ir.Expr]
"""From a block builder and the operands to the result."""


def module_of(build: Build, *shapes: Sequence[int]) -> tvm.IRModule:
    """Returns the module of a function of operands with these shapes."""
    operands = [relax.Var(f"x{at}", relax.TensorType(shape, "float32")) for at, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", operands):
        with builder.dataflow():
            result = builder.emit_output(build(builder, *operands))
        builder.emit_func_output(result)
    return relax.transform.Normalize()(builder.get())


def calls(module: tvm.IRModule) -> list[ir.Call]:
    """Returns all calls, in order."""
    bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
    return [binding.value for binding in bindings if isinstance(binding.value, ir.Call)]


def operators(module: tvm.IRModule) -> list[str]:
    """Returns what is called, in order, without what it is under."""
    return [call.op.name.rpartition(".")[2] for call in calls(module)]


def run(module: tvm.IRModule, *operands: np.ndarray) -> np.ndarray:
    """Returns what the function computes of its operands."""
    executable = tvm.compile(module, tvm.target.Target("llvm"))
    return relax.VirtualMachine(executable, tvm.cpu())["main"](*map(tvm.runtime.tensor, operands)).numpy()


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    """Returns normal data."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def assert_same_as_torch(model: ModelSpec) -> None:
    """Asserts that what is extracted of a torch model with one output computes what the model does."""
    arguments = example_inputs(model)
    found = run(load_model(model).module, *(argument.numpy() for argument in arguments.values()))
    (expected,) = run_network(model, make_network(model), arguments)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-5)
