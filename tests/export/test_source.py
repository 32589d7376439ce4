"""The library's tables in C: dynamic extents are computed from sizes with the same results as in Python."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import tirx

from anole.errors import ExportError
from anole.export.sequence import Operand, TensorPlace
from anole.export.source import extent_lines
from anole.ir.ranges import SizeRange
from anole.ir.symbols import format_extent
from anole.targets.shared.kernel import find_compiler

NETWORK_C = Path(__file__).parents[2] / "lib/anole/export/c/network.c"
N, MIN = tirx.Var("n", "int64"), tirx.Var("min", "int64")
EXTENTS = [N * 4, (N * MIN + 15) // 16 * 16, (N - 9) // 2 + 30, (N - 40) % 7, tirx.max(MIN - 3, tirx.min(N, 5))]


def network(*texts: str | None) -> Any:
    operand = Operand(TensorPlace.INPUT, 0, (1,) * len(texts), "float32", texts)
    return SimpleNamespace(operands=[operand], ranges={"n": SizeRange(1, 99), "min": SizeRange(1, 99)})


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that prints the extents for given sizes."""
    helpers = re.findall(r"^static inline int64_t .*$", NETWORK_C.read_text(), re.MULTILINE)
    lines = extent_lines(network(None, *(format_extent(each, calls=True) for each in EXTENTS)))
    folder = tmp_path_factory.mktemp("extents")
    (folder / "program.c").write_text(
        "\n".join(
            [
                *("#include <stdint.h>", "#include <stdio.h>", "#include <stdlib.h>", *helpers),
                "int main(int argc, char** argv) {",
                f"  int64_t sizes[2] = {{atoi(argv[1]), atoi(argv[argc - 1])}}, extents[{len(EXTENTS) + 1}] = {{0}};",
                *lines,
                f'  for (int i = 1; i <= {len(EXTENTS)}; ++i) printf("%ld ", (long)extents[i]);',
                "}",
            ]
        )
    )
    made = folder / "program"
    subprocess.run([find_compiler(), "-std=c11", str(folder / "program.c"), "-o", str(made)], check=True)
    return made


@given(n=st.integers(1, 99), min_value=st.integers(1, 99))
def test_extents_match_python(n: int, min_value: int, program: Path) -> None:
    said = subprocess.run([str(program), str(n), str(min_value)], capture_output=True, text=True, check=True).stdout
    expected = [n * 4, (n * min_value + 15) // 16 * 16, (n - 9) // 2 + 30, (n - 40) % 7, max(min_value - 3, min(n, 5))]
    assert [int(each) for each in said.split()] == expected


def test_unsupported_expressions_are_rejected() -> None:
    with pytest.raises(
        ExportError, match=r"a tensor with T.Select\(.*\) elements along an axis, which cannot be exported to C"
    ):
        list(extent_lines(network(format_extent(tirx.Select(N > 4, N, MIN), calls=True))))
