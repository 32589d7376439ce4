from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

import pytest

from anole.documents.plain import Misfit, from_plain, json_fields, misfit, parse_json, to_plain
from anole.keys import Key, Time
from anole.record import FLAT, LATER


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Part:
    key: Key
    layers: tuple[str, ...]


@dataclass(frozen=True)
class Size:
    width: int
    height: int | None


@dataclass(frozen=True)
class Thing:
    name: str
    count: int
    ratio: float | None
    at: Time
    parts: tuple[Part, ...]
    size: Annotated[Size, FLAT]
    inner: Size
    colour: Colour
    more: Mapping[str, Any] = field(hash=False)
    since: Annotated[bool, LATER] = False


FITTING = {
    "name": "x",
    "count": 3,
    "ratio": None,
    "at": "2026-11-21T10:00:00.000Z",
    "parts": [{"key": "a" * 64, "layers": ["one", "two"]}],
    "width": 3,
    "height": None,
    "inner": {"width": 1, "height": 2},
    "colour": "red",
    "more": {"any": [1, None]},
    "since": True,
}


def test_what_fits() -> None:
    assert misfit(FITTING, Thing) is None
    assert misfit({**FITTING, "ratio": 1}, Thing) is None
    assert misfit({name: value for name, value in FITTING.items() if name != "ratio"}, Thing) is None


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
        ({"width": "wide"}, "width is 'wide', not a whole number"),
        ({"inner": {"width": 1.0}}, "inner.width is 1.0, not a whole number"),
        ({"colour": "green"}, "colour is 'green', not one of red, blue"),
        ({"name": "y" * 1000, "count": "z" * 1000}, "..., not a whole number"),
    ],
)
def test_what_does_not_fit_is_named(change: dict, problem: str) -> None:
    found = misfit({**FITTING, **change}, Thing)
    assert found is not None
    assert problem in found
    assert len(found) < 200


def test_a_missing_field_is_named() -> None:
    assert misfit({name: value for name, value in FITTING.items() if name != "parts"}, Thing) == "parts is missing"
    assert misfit([], Thing) == "the value is [], not an object"


def test_plain_values_become_what_they_were() -> None:
    thing = from_plain(Thing, FITTING)
    assert thing.parts == (Part("a" * 64, ("one", "two")),)
    assert (thing.size, thing.inner, thing.colour) == (Size(3, None), Size(1, 2), Colour.RED)
    assert to_plain(thing) == FITTING
    assert json_fields(Thing) == {"parts", "inner", "more"}


def test_unknown_fields_are_left_out() -> None:
    assert from_plain(Thing, {**FITTING, "unknown": 1}) == from_plain(Thing, FITTING)


@pytest.mark.parametrize("name", ["ratio", "height", "since"])
def test_some_fields_may_be_absent(name: str) -> None:
    thing = from_plain(Thing, {key: value for key, value in FITTING.items() if key != name})
    assert (thing.ratio, thing.size.height) == (None, None)
    assert thing.since is (name != "since")


def test_a_misfit_is_refused() -> None:
    with pytest.raises(Misfit, match="width is missing"):
        from_plain(Thing, {key: value for key, value in FITTING.items() if key != "width"})


@pytest.mark.parametrize("text", [b"NaN", b'{"a":Infinity}', b'{"a":', b"", b"\xff", b"\0\0\0\0"])
def test_json_is_strict(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_json(text)
