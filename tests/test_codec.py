from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest

from anole.codec import FLAT, LATER, DecodeError, Range, decode, decode_present, encode, json_fields
from anole.keys import Key, Time


class Color(StrEnum):
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
    color: Color
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
    "color": "red",
    "more": {"any": [1, None]},
    "since": True,
}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": 3}, "name is 3, not text"),
        ({"count": 1.5}, "count is 1.5, not an integer"),
        ({"count": True}, "count is True, not an integer"),
        ({"ratio": "1"}, "ratio is '1', not a number or null"),
        ({"at": "yesterday"}, "at is 'yesterday', not of the form"),
        ({"parts": {}}, "parts is {}, not a list"),
        ({"parts": [3]}, "parts[0] is 3, not an object"),
        ({"parts": [*FITTING["parts"], {"key": "a", "layers": []}]}, "parts[1].key is 'a', not of the form"),
        ({"width": "wide"}, "width is 'wide', not an integer"),
        ({"inner": {"width": 1.0}}, "inner.width is 1.0, not an integer"),
        ({"color": "green"}, "color is 'green', not one of red, blue"),
        ({"name": "y" * 1000, "count": "z" * 1000}, "..., not an integer"),
    ],
)
def test_invalid_values_are_reported_with_their_path(change: dict, problem: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(Thing, {**FITTING, **change})
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_missing_field_is_reported() -> None:
    with pytest.raises(DecodeError, match=r"^parts is missing$"):
        decode(Thing, {name: value for name, value in FITTING.items() if name != "parts"})
    with pytest.raises(DecodeError, match=r"^the value is \[\], not an object$"):
        decode(Thing, [])


def test_plain_values_round_trip() -> None:
    thing = decode(Thing, FITTING)
    assert thing.parts == (Part("a" * 64, ("one", "two")),)
    assert (thing.size, thing.inner, thing.color) == (Size(3, None), Size(1, 2), Color.RED)
    assert encode(thing) == FITTING
    assert json_fields(Thing) == {"parts", "inner", "more"}


def test_unknown_fields_are_ignored() -> None:
    assert decode(Thing, {**FITTING, "unknown": 1}) == decode(Thing, FITTING)


@pytest.mark.parametrize("name", ["ratio", "height", "since"])
def test_some_fields_may_be_absent(name: str) -> None:
    thing = decode(Thing, {key: value for key, value in FITTING.items() if key != name})
    assert (thing.ratio, thing.size.height) == (None, None)
    assert thing.since is (name != "since")


@dataclass(frozen=True)
class Wish:
    """A value written by users."""

    pair: tuple[int, int]
    sizes: Mapping[Key, Size] = field(hash=False)
    kind: Literal["tall", "small"] = "tall"
    rate: Annotated[float, Range(0, 1)] | None = None


WISH = {"pair": [1, 2], "sizes": {"a" * 64: {"width": 1}}}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"pair": [1]}, "pair is [1], not a list of 2 items"),
        ({"pair": [1, "x"]}, "pair[1] is 'x', not an integer"),
        ({"pear": [1, 2]}, "pear is unknown; did you mean 'pair'? allowed: pair, sizes, kind, rate"),
        ({"sizes": {"a": {"width": 1}}}, "sizes.a is 'a', not of the form [0-9a-f]{64}"),
        ({"sizes": {"a" * 64: {"wide": 1}}}, f"sizes.{'a' * 64}.wide is unknown; did you mean 'width'?"),
        ({"kind": "big"}, "kind is 'big', not one of tall, small"),
        ({"kind": None}, "kind is None, not one of tall, small"),
        ({"rate": 2}, "rate is 2, not a number from 0 to 1 or null"),
        ({"rate": math.nan}, "rate is nan, not a number from 0 to 1 or null"),
        ({"rate": True}, "rate is True, not a number from 0 to 1 or null"),
    ],
)
def test_values_of_users_are_decoded_strictly(change: dict, problem: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(Wish, {**WISH, **change}, strict=True)
    assert str(caught.value).startswith(problem)


def test_values_of_users_have_defaults() -> None:
    assert decode(Wish, WISH, strict=True) == Wish((1, 2), {"a" * 64: Size(1, None)})
    assert encode(decode(Wish, {**WISH, "rate": 1}, strict=True)) == {
        **{"pair": [1, 2], "sizes": {"a" * 64: {"width": 1, "height": None}}, "kind": "tall", "rate": 1.0}
    }
    rate = decode_present(Wish, {"rate": 1})["rate"]
    assert (rate, type(rate)) == (1.0, float)
