"""Spaces from plain values: restrictions as expressions and as functions, and expressions that are refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from anole.bench.spaces import make_space, restrict_to
from anole.errors import StoreError

VALUES = {"x": [1, 2, 4, 8, 3], "y": [0, 1, 5], "mode": ["row", "column"]}

EXPRESSIONS = (
    "x * y <= 8",
    "2 <= x + y < 7",
    "y == 0 or x // y % 2 == 1",
    "not (x > 2 and y > 0)",
    "mode == 'row' or x in [2, 4]",
    "x not in (1, 8) and mode != 'row'",
    "-x + y ** 2 > 0.5 * x",
    "True",
)


def valid_configs(restriction: Any) -> list[dict[str, Any]]:
    space = make_space(VALUES, [restriction])
    return [space.config(vector) for vector in space.vectors(space.all_valid_indices)]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_means_the_same_as_in_python(expression: str) -> None:
    every = [dict(zip(VALUES, each, strict=True)) for each in itertools.product(*VALUES.values())]
    expected = [config for config in every if eval(expression, {}, config)]
    found = valid_configs(expression)
    assert len(found) == len(expected) and all(config in found for config in expected)
    assert valid_configs(lambda config: eval(expression, {}, config)) == found


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("__import__('os').system('true')", "`__import__.* is not allowed; use x, y, mode, literals"),
        ("x.__class__ == 1", "`x.__class__` is not allowed"),
        ("z < 3", "`z` is not allowed"),
        ("[each for each in x]", "is not allowed"),
        ("x <", "is not an expression"),
        ("x << 70 > 1", "is not allowed"),
        ("mode * 2 > 1", "cannot be evaluated"),
        ("(" * 300 + "x" + ")" * 300, "is not an expression"),
    ],
)
def test_other_code_is_refused(expression: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        make_space(VALUES, [expression])


def test_a_large_power_overflows_at_once() -> None:
    make_space(VALUES, ["9 ** 9 ** 9 ** 9 > x"])


def test_a_space_can_be_limited_to_configs_with_a_result() -> None:
    space = make_space(VALUES, ["x > 1"])
    mask = np.arange(space.size) % 3 == 0
    found = restrict_to(space, "it has no result", mask)
    assert found.all_valid_indices.tolist() == [index for index in space.all_valid_indices.tolist() if index % 3 == 0]
    lost = space.config(space.vectors(np.flatnonzero(~mask))[1])
    assert found.rejection(lost) == "it has no result" and found.rejection({**lost, "x": 1}) == "it violates `x > 1`"
