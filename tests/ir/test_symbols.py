"""Symbolic extents: formatting, size hints, and opaque symbols for computed extents."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm import te, tirx

from anole.ir.nodes import collect, with_values
from anole.ir.ranges import SizeRange
from anole.ir.symbols import (
    at_sizes,
    computed_extents,
    format_extent,
    is_small,
    is_static,
    largest,
    name_opaque_extents,
    prime_sizes,
    size_hint,
    symbol_of,
    varying_texts,
    with_opaque_extents,
)

N, M = symbol_of("batch-size", SizeRange(1, 9)), symbol_of("T", SizeRange(2, 40))


def doubled(*shape: Any) -> tirx.PrimFunc:
    """Return a function on a tensor of this shape, with the symbols as further parameters."""
    data = te.placeholder(shape, "float32", name="data")
    result = te.compute(shape, lambda *at: data[at] * 2, name="doubled")
    return te.create_prim_func([data, N, M, result], "int64").without_attr("global_symbol")


@pytest.mark.parametrize(
    ("extent", "text"),
    [
        (tirx.IntImm("int64", 7), "7"),
        (N, "batch-size"),
        (M * 2, "T * 2"),
        ((N * M + 15) // 16 * 16, "(((batch-size * T) + 15) // 16) * 16"),
        (tirx.min(M, 4) % 3, "min(T, 4) % 3"),
    ],
)
def test_extents_are_formatted_with_symbol_names(extent: Any, text: str) -> None:
    assert format_extent(extent) == text


def test_only_dynamic_extents_have_a_text() -> None:
    assert varying_texts([N, 3, M * 2]) == ("batch-size", None, "T * 2")
    assert varying_texts([2, 3]) is None


def test_sizes_are_substituted_in_computed_extents() -> None:
    found = at_sizes(doubled(N * 4, N * M + 1), {"batch-size": 3, "T": 5})
    extents = [loop.extent for loop in collect(found.body, tirx.For)]
    assert all(map(is_static, extents)) and sorted(map(int, extents)) == [12, 16]


def test_computed_extents_are_temporarily_opaque() -> None:
    func = doubled(N * 4, N * 4, M, 3)
    plain = name_opaque_extents(func)
    first, second, own, number = plain.params[0].ty.shape
    assert first.same_as(second) and isinstance(first, tirx.Var) and format_extent(first) == "batch-size * 4"
    assert isinstance(own, tirx.Var) and int(number) == 3
    assert list(computed_extents(plain)) == ["batch-size * 4"] and not computed_extents(func)
    tvm.ir.assert_structural_equal(with_opaque_extents(func, lambda each: each), func)


def test_size_hints_use_the_range_of_a_symbol() -> None:
    assert size_hint(N * M + 1) == 2 * 8 + 1 and size_hint(N * M, {"batch-size": 3, "T": 5}) == 15
    assert largest(N * 4 - M) == 9 * 4 - 2 and largest(N + tirx.Var("k", "int64")) is None
    assert size_hint(tirx.Var("k", "int64")) is None and size_hint(3) == largest(3) == 3
    assert list(prime_sizes(doubled(N, M)).values()) == [3, 11]


@pytest.mark.parametrize(("size", "small"), [(1, True), (4, True), (5, False)])
def test_the_small_size_condition(size: int, small: bool) -> None:
    """The limit is the geometric mean of the minimum 2 and the typical size 8."""
    found = tvm.sym.Analyzer().simplify(with_values(is_small([M]), {M: tirx.IntImm("int64", size)}))
    assert bool(found) is small
