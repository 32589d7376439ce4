"""Every large function of a real network is parallel and vectorized on the CPU, with or without an anchor."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest
import tvm
from tvm import tirx

from anole.config.entries import ModelSpec
from anole.extract.load import load_model
from anole.targets import get_device
from anole.targets.cpu.default.loop_nests import MIN_PARALLEL_WORK
from anole.targets.cpu.settings import describe_cpu

from .conftest import functions, lower_network

TARGET = get_device({**describe_cpu(), "threads": 2})


def nests(func: tirx.PrimFunc) -> list[list[tirx.For]]:
    """Return the loops around each store of a function, outermost first."""
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
def test_large_loop_nests_are_parallel_and_vectorized(name: str, size: int) -> None:
    imported, large = load_model(ModelSpec(name, f"torchvision:{name}", {"x": (1, 3, size, size)})), 0
    for kernel, func in functions(lower_network(imported, TARGET)).items():
        for loops in nests(func):
            if prod(int(loop.extent) for loop in loops) < MIN_PARALLEL_WORK:
                continue
            large += 1
            kinds = {int(loop.kind) for loop in loops}
            assert tirx.ForKind.PARALLEL in kinds, kernel
            # LLVM interleaves the few channels of an image.
            assert tirx.ForKind.VECTORIZED in kinds or int(loops[-1].extent) == 3, kernel
    assert large > 10


@pytest.mark.guard
def test_a_large_encoder_layer_is_fused_parallel_and_vectorized(project: Path) -> None:
    (project / "large.py").write_text(
        "from torch import nn\n\n"
        "def encoder():\n"
        "    return nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, activation='gelu')\n"
    )
    imported = load_model(ModelSpec("net", "torch:large:encoder", {"x": (1, 128, 512)}))
    scripts = {name: func.script() for name, func in functions(lower_network(imported, TARGET)).items()}
    serial = [name for name, text in scripts.items() if "T.parallel(" not in text or "T.vectorized(" not in text]
    assert not serial
    # Scale and activation are fused into the products.
    epilogues = sorted(name for name in scripts if "gelu" in name or "multiply" in name)
    assert [name.split("_")[1] for name in epilogues] == ["batch", "dense2"]
