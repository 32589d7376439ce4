"""Memory access analysis of a block: the stride along each axis is found independently of the other axes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import s_tir, te

from anole.targets.cpu.default.memory_access import describe_block


def strides(definition: Callable[..., te.Tensor]) -> list[int | None]:
    """Return the strides of a definition's load from data of shape (9, 8)."""
    data, indices = te.placeholder((9, 8), name="data"), te.placeholder((5,), "int32", name="indices")
    schedule = s_tir.Schedule(te.create_prim_func([data, indices, definition(data, indices)]))
    (rv,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    block = describe_block(schedule.get(rv))
    assert block is not None
    return [axis.loads[-1] for axis in block.axes]


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (lambda x, at: te.compute((5, 8), lambda i, j: x[i + 1, j]), [8, 1]),
        (lambda x, at: te.compute((5, 8), lambda i, j: x[at[i], j]), [None, 1]),
        (lambda x, at: te.compute((9, 5), lambda i, j: x[i, at[j]]), [8, None]),
        (lambda x, at: te.compute((5, 4), lambda i, j: x[i // 2, 2 * j]), [None, 2]),
    ],
)
def test_strides(definition: Callable[..., te.Tensor], expected: list[int | None]) -> None:
    assert strides(definition) == expected
