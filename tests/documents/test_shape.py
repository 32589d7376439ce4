from __future__ import annotations

import pytest

from anole.documents.shape import KEY, LIST, NOTHING, NUMBER, TEXT, TIME, WHOLE, misfit, parse_json

SHAPE = {
    "name": TEXT,
    "count": WHOLE,
    "ratio": NUMBER | NOTHING,
    "at": TIME,
    "parts": [{"key": KEY, "layers": LIST}],
}
FITTING = {
    "name": "x",
    "count": 3,
    "ratio": None,
    "at": "2026-11-21T10:00:00.000Z",
    "parts": [{"key": "a" * 64, "layers": []}],
    "more": "is let through",
}


def test_what_fits() -> None:
    assert misfit(FITTING, SHAPE) is None
    assert misfit({**FITTING, "ratio": 1}, SHAPE) is None
    assert misfit({name: value for name, value in FITTING.items() if name != "ratio"}, SHAPE) is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": 3}, "name is 3, not text"),
        ({"count": 1.5}, "count is 1.5, not a whole number"),
        ({"count": True}, "count is True, not a whole number"),
        ({"ratio": "1"}, "ratio is '1', not a number or null"),
        ({"at": "yesterday"}, "at is 'yesterday', not of the form"),
        ({"parts": {}}, "parts is {}, not a list"),
        ({"parts": [3]}, "parts[0] is 3, not an object"),
        ({"parts": [*FITTING["parts"], {"key": "a", "layers": []}]}, "parts[1].key is 'a', not of the form"),
        ({"name": "y" * 1000, "count": "z" * 1000}, "..., not a whole number"),
    ],
)
def test_what_does_not_fit_is_named(change: dict, problem: str) -> None:
    found = misfit({**FITTING, **change}, SHAPE)
    assert found is not None
    assert problem in found
    assert len(found) < 200


def test_a_missing_field_is_named() -> None:
    assert misfit({name: value for name, value in FITTING.items() if name != "parts"}, SHAPE) == "parts is missing"
    assert misfit([], SHAPE) == "the value is [], not an object"


@pytest.mark.parametrize("text", [b"NaN", b'{"a":Infinity}', b'{"a":', b"", b"\xff", b"\0\0\0\0"])
def test_json_is_strict(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_json(text)
