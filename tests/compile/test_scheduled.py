"""No function of a real network runs serial or scalar on the CPU, whether it holds an anchor or not."""

from __future__ import annotations

from math import prod

import pytest
import tvm
from tvm import tirx

from anole.compile.lower import Choice, lower
from anole.declared.entries import ModelSpec
from anole.extract.graph import find_layers
from anole.extract.load import load_model
from anole.targets import get_device
from anole.targets.cpu.default.loop_nests import SERIAL_WORK
from anole.targets.cpu.settings import describe_cpu

TARGET = get_device({**describe_cpu(), "threads": 2})


def lowered(name: str, size: int) -> tvm.IRModule:
    """A network of torchvision, untuned."""
    imported = load_model(ModelSpec(name, f"torchvision:{name}", {"x": (1, 3, size, size)}))
    workloads = dict.fromkeys(layer.workload for layer in find_layers(imported))
    choices = {each: Choice(TARGET.template(each), TARGET.default_config(each)) for each in workloads}
    module, failures = lower(imported.module, choices, TARGET.schedule_default)
    assert not failures
    return module


def nests(func: tirx.PrimFunc) -> list[list[tirx.For]]:
    """The loops around each store of a function, outermost first."""
    found: list[list[tirx.For]] = []

    def visit(statement: tirx.Stmt, around: list[tirx.For]) -> None:
        if isinstance(statement, tirx.For):
            visit(statement.body, [*around, statement])
        elif isinstance(statement, tvm.s_tir.SBlockRealize):
            visit(statement.block.body, around)
        elif isinstance(statement, tirx.SeqStmt):
            for each in statement.seq:
                visit(each, around)
        elif isinstance(statement, tirx.BufferStore):
            found.append(around)

    visit(func.body, [])
    return found


@pytest.mark.guard
@pytest.mark.parametrize(
    ("name", "size"), [pytest.param("squeezenet1_1", 96, marks=pytest.mark.slow), ("mobilenet_v2", 96)]
)
def test_what_is_large_is_parallel_and_vectorised(name: str, size: int) -> None:
    large = 0
    for variable, func in lowered(name, size).functions_items():
        for loops in nests(func) if isinstance(func, tirx.PrimFunc) else []:
            if prod(int(loop.extent) for loop in loops) < SERIAL_WORK:
                continue
            large += 1
            kinds = {int(loop.kind) for loop in loops}
            assert tirx.ForKind.PARALLEL in kinds, variable.name_hint
            # The few channels of an image are interleaved by LLVM.
            assert tirx.ForKind.VECTORIZED in kinds or int(loops[-1].extent) == 3, variable.name_hint
    assert large > 10
