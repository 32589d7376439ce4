"""Reading a lowered network: calls, views, outputs, and networks that cannot be exported to C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax, te

from anole.errors import ExportError
from anole.export.sequence import KernelSequence, TensorPlace, lower_calls, read_sequence
from anole.ir.ranges import SizeRange
from anole.ir.symbols import symbol_of
from anole.targets.cpu.device.builder import llvm_target

Body = Callable[[relax.BlockBuilder, Any], Any]


def read(body: Body, outputs: int = 1) -> KernelSequence:
    """Read a network whose input has shape (2, 3)."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = builder.emit_output(body(builder, x))
        builder.emit_func_output(found)
    target = llvm_target({"mcpu": "x86-64-v2", "threads": 1})
    return read_sequence(lower_calls(builder.get(), target), outputs)


def double(builder: relax.BlockBuilder, value: Any) -> Any:
    return builder.emit_te(lambda data: te.compute(data.shape, lambda *at: data[at] * 2, name="doubled"), value)


def test_views_share_memory_and_the_last_kernel_writes_the_output() -> None:
    made = read(lambda builder, x: double(builder, builder.emit(relax.op.reshape(double(builder, x), (3, 2)))))
    (first, second) = made.steps
    assert [operand.place for operand in (*first.operands, *second.operands)] == [
        TensorPlace.INPUT, TensorPlace.BUFFER, TensorPlace.BUFFER, TensorPlace.OUTPUT,
    ]  # fmt: skip
    assert first.operands[1].number == second.operands[0].number
    assert (first.operands[1].shape, second.operands[0].shape) == ((2, 3), (3, 2))
    assert made.buffers == [24, 0] and made.copies == []


def test_outputs_that_no_kernel_writes_are_copied() -> None:
    constant = relax.const(np.ones((2, 2), np.float32))

    def several(builder: relax.BlockBuilder, x: Any) -> Any:
        once = double(builder, x)
        return builder.emit(relax.Tuple([once, x, constant, once]))

    made = read(several, 4)
    assert [(operand.place, number) for operand, number in made.copies] == [
        (TensorPlace.INPUT, 1), (TensorPlace.WEIGHTS, 2), (TensorPlace.OUTPUT, 3),
    ]  # fmt: skip
    assert made.buffers == [0]


def test_equal_constants_are_stored_once() -> None:
    def sums(builder: relax.BlockBuilder, x: Any) -> Any:
        for _ in range(2):
            x = builder.emit(relax.op.add(x, relax.const(np.full((2, 3), 5, np.float32))))
        return x

    assert len(read(sums).constants) == 1


def packed(builder: relax.BlockBuilder, x: Any) -> Any:
    return builder.emit(relax.op.call_dps_packed("some.function", [x], relax.TensorType((2, 3), "float32")))


@pytest.mark.parametrize(
    ("body", "outputs", "message"),
    [
        (packed, 1, r"some\.function.*, which cannot be exported to C"),
        (double, 2, "the network has 1 outputs, but the build describes 2"),
        (
            lambda builder, x: builder.emit(relax.op.astype(x, "float8_e4m3fn")),
            1,
            "the network has a tensor of float8_e4m3fn, which cannot be exported to C",
        ),
    ],
)
def test_unsupported_operations_are_reported(body: Body, outputs: int, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        read(body, outputs)


def test_memory_is_planned_for_the_largest_extents() -> None:
    """An extent may be largest for the smallest size."""
    n = symbol_of("n", SizeRange(1, 40))
    x, y = (relax.Var(name, relax.TensorType((extent, 3), "float32")) for name, extent in (("x", n), ("y", 64 - n)))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            found = [double(builder, double(builder, each)) for each in (x, y)]
            result = builder.emit_output(relax.Tuple(found))
        builder.emit_func_output(result)
    lowered = lower_calls(builder.get(), llvm_target({"mcpu": "x86-64-v2", "threads": 1}))
    made = read_sequence(lowered, 2)
    assert [each.shape for each in made.inputs] == [(40, 3), (63, 3)]
    assert [each.varying for each in made.outputs] == [("n", None), ("64 - n", None)]
    assert sorted(made.buffers) == [0, 0, 40 * 12, 63 * 12]
