"""Padding of rows to full vectors: the padding never affects the result."""

from __future__ import annotations

import pytest
from tvm import te, tirx, topi

from anole.targets.cpu.default.pad_to_vectors import pad_rows


def softmax(*shape: int) -> tirx.PrimFunc:
    data = te.placeholder(shape, name="data")
    return te.create_prim_func([data, topi.nn.softmax(data, -1)])


def test_intermediate_rows_are_padded_and_the_result_is_not() -> None:
    func = pad_rows(softmax(20, 197), 16, {})
    assert {int(buffer.ty.shape[-1]) for buffer in func.body.block.alloc_buffers if len(buffer.ty.shape) == 2} == {208}
    assert [int(param.ty.shape[-1]) for param in func.params] == [197, 197]


def test_reductions_ignore_the_padding() -> None:
    text = pad_rows(softmax(20, 197), 16, {}).script()
    assert text.count("T.Select(") == 2


@pytest.mark.parametrize("definition", [topi.nn.relu, lambda x: topi.nn.softmax(x, 0)])
def test_functions_without_row_reductions_are_rejected(definition: object) -> None:
    data = te.placeholder((20, 197), name="data")
    with pytest.raises(ValueError, match="row"):
        pad_rows(te.create_prim_func([data, definition(data)]), 16, {})  # type: ignore[operator]
