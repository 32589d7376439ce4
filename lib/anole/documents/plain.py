"""Frozen dataclasses as plain JSON values and back; a value that does not fit is named by its place."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from types import NoneType
from typing import Annotated, Any, NoReturn, TypeVar, cast, get_args, get_origin, get_type_hints

from anole.errors import shown
from anole.record import FLAT, LATER

T = TypeVar("T")

_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    dict: "an object",
    list: "a list",
    bool: "true or false",
    NoneType: "null",
}
_LARGEST = 1 << 63
"""Whole numbers of records and documents fit into 64 bits, as the database stores them."""

_DEEPEST = 64
"""Number of lists and objects within each other that a JSON text may have."""

_PLAIN = frozenset({str, int, float, bool, NoneType})


class Misfit(ValueError):
    """A plain value that a dataclass cannot be made from; the message names the place and what was found."""


def to_plain(value: Any) -> Any:
    """Returns a dataclass, or what a field of one holds, as plain JSON values.

    Every field is written, None as null. The fields of a dataclass that is annotated as `FLAT` stand among those of the
    dataclass that holds it. The values of a mapping are plain already.
    """
    if type(value) in _PLAIN:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain: dict[str, Any] = {}
        for column in _columns(type(value)):
            own = to_plain(getattr(value, column.name))
            plain |= own if column.flat else {column.name: own}
        return plain
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (tuple, list)):
        return [to_plain(each) for each in value]
    return value


def from_plain(cls: type[T], plain: object) -> T:
    """Returns the dataclass that `to_plain` made plain.

    A field that may be null, or is annotated as `LATER`, may be absent. Unknown fields are left out.

    Raises:
        Misfit: the value does not have the dataclass's fields, or one of another type.
    """
    problem = misfit(plain, cls)
    if problem is not None:
        raise Misfit(problem)
    return cast(T, _made(cls, cast("dict[str, Any]", plain)))


def misfit(plain: object, cls: type, place: str = "") -> str | None:
    """Says why no dataclass of a class can be made from a plain value, or returns None when one can.

    Args:
        plain: what was read.
        cls: the dataclass.
        place: where the value stands in its document, such as ``tasks[3].``; for the message.
    """
    if not isinstance(plain, dict):
        return f"{place.rstrip('.') or 'the value'} is {shown(plain)}, not an object"
    for name, rule in _rules(cls):
        found = plain.get(name)
        if type(found) in rule.free:
            continue
        problem = rule.problem(found, place + name)
        if problem is not None:
            return problem if name in plain else f"{place}{name} is missing"
    return None


def unset(value: Any) -> frozenset[str]:
    """Returns the names of a dataclass's fields that are annotated as `LATER` and have their defaults."""
    defaults = {field.name: field.default for field in dataclasses.fields(value)}
    later = (column.name for column in _columns(cast(type, type(value))) if column.later)
    return frozenset(name for name in later if getattr(value, name) == defaults[name])


def flat_fields(cls: type, prefix: str = "") -> Mapping[str, str]:
    """Returns the path to each value of a dataclass's plain form, such as ``measurement.status``, by its name there."""
    paths: dict[str, str] = {}
    for column in _columns(cls):
        path = prefix + column.name
        paths |= flat_fields(_bare(column.hint)[0], f"{path}.") if column.flat else {column.name: path}
    return paths


def json_fields(cls: type) -> frozenset[str]:
    """Returns the names of a dataclass's fields, flat ones included, whose values are objects or lists."""
    return frozenset(name for name, rule in _rules(cls) if rule.types & {dict, list})


def parse_json(text: bytes) -> Any:
    """Returns the value of a JSON text in UTF-8.

    Raises:
        ValueError: it is not such a text, it is nested too deeply, or it holds NaN, an infinity, a number that is out
            of range or half of a surrogate pair.
    """
    return _parsed(text, _STRICT)


def parse_record(text: bytes) -> Any:
    """Returns the value of a JSON text as `parse_json` does, only faster: ranges of numbers are not checked.

    The fields of a record are checked afterwards, see `from_plain`.

    Raises:
        ValueError: as for `parse_json`.
    """
    return _parsed(text, _QUICK)


@dataclass(frozen=True)
class _Rule:
    """What may stand in a field.

    Attributes:
        types: the JSON types.
        pattern: what a text must match.
        choices: the texts that are allowed; any when empty.
        item: the dataclass of a list's items; anything when None.
        inner: the dataclass of an object; anything when None.
        free: those of the types of which every value may stand there, so that no more need be checked.
    """

    types: frozenset[type]
    pattern: re.Pattern[str] | None = None
    choices: tuple[str, ...] = ()
    item: type | None = None
    inner: type | None = None
    free: frozenset[type] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        bound = {
            int: True,
            str: self.pattern is not None or bool(self.choices),
            list: self.item is not None,
            dict: self.inner is not None,
        }
        object.__setattr__(self, "free", frozenset(kind for kind in self.types if not bound.get(kind, False)))

    def problem(self, found: object, place: str) -> str | None:
        """Says what is wrong with a value, or returns None."""
        kind = type(found)
        if kind not in self.types:
            return f"{place} is {shown(found)}, not {self._named()}"
        if kind is int and not -_LARGEST <= cast(int, found) < _LARGEST:
            return f"{place} is {shown(found)}, which does not fit into 64 bits"
        if kind is str:
            if self.pattern is not None and not self.pattern.fullmatch(cast(str, found)):
                return f"{place} is {shown(found)}, not of the form {self.pattern.pattern}"
            if self.choices and found not in self.choices:
                return f"{place} is {shown(found)}, not one of {', '.join(self.choices)}"
        elif self.item is not None and kind is list:
            problems = (misfit(each, self.item, f"{place}[{n}].") for n, each in enumerate(cast("list[Any]", found)))
            return next((problem for problem in problems if problem is not None), None)
        elif self.inner is not None and kind is dict:
            return misfit(found, self.inner, f"{place}.")
        return None

    def _named(self) -> str:
        kinds = self.types - {int} if float in self.types else self.types
        return " or ".join(word for kind, word in _WORDS.items() if kind in kinds)


@dataclass(frozen=True)
class _Column:
    """A field of a dataclass: how it is checked and made.

    Attributes:
        flat: whether its fields stand among those of the dataclass that holds it.
        later: whether documents of an older version lack it.
        make: makes the value of its plain form; None where they are the same.
    """

    name: str
    hint: Any
    flat: bool
    later: bool
    make: Callable[[Any], Any] | None


@cache
def _columns(cls: type) -> tuple[_Column, ...]:
    hints = get_type_hints(cls, include_extras=True)
    columns = []
    for field in dataclasses.fields(cls):
        hint, metadata = _bare(hints[field.name])
        columns.append(_Column(field.name, hints[field.name], FLAT in metadata, LATER in metadata, _maker(hint)))
    return tuple(columns)


@cache
def _rules(cls: type) -> tuple[tuple[str, _Rule], ...]:
    rules: list[tuple[str, _Rule]] = []
    for column in _columns(cls):
        if column.flat:
            rules += _rules(_bare(column.hint)[0])
        else:
            rule = _rule(column.hint)
            if column.later:
                rule = dataclasses.replace(rule, types=rule.types | {NoneType})
            rules.append((column.name, rule))
    return tuple(rules)


def _rule(hint: Any) -> _Rule:
    """Returns what may stand in a field of a type hint."""
    hint, metadata = _bare(hint)
    pattern = next((each for each in metadata if isinstance(each, re.Pattern)), None)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = _rule(next(each for each in arguments if each is not NoneType))
        return dataclasses.replace(inner, types=inner.types | {NoneType})
    if origin is not None and issubclass(origin, Mapping):
        return _Rule(frozenset({dict}))
    if origin is not None and issubclass(origin, Sequence):
        item, _ = _bare(arguments[0])
        return _Rule(frozenset({list}), item=cast(type, item) if dataclasses.is_dataclass(item) else None)
    if dataclasses.is_dataclass(hint):
        return _Rule(frozenset({dict}), inner=cast(type, hint))
    if issubclass(hint, StrEnum):
        return _Rule(frozenset({str}), choices=tuple(each.value for each in hint))
    return _Rule(frozenset({int, float}) if hint is float else frozenset({hint}), pattern)


def _bare(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Returns a type hint without its annotations, and these."""
    if get_origin(hint) is Annotated:
        bare, *metadata = get_args(hint)
        return bare, tuple(metadata)
    return hint, ()


def _maker(hint: Any) -> Callable[[Any], Any] | None:
    """Returns what makes a field's value of its plain form; None where they are the same."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        make = _maker(_bare(next(each for each in arguments if each is not NoneType))[0])
        return None if make is None else partial(_made_unless_none, make)
    if origin is not None and not issubclass(origin, Mapping) and issubclass(origin, Sequence):
        make = _maker(_bare(arguments[0])[0])
        return tuple if make is None else lambda value: tuple(map(make, value))
    if dataclasses.is_dataclass(hint):
        return lambda value: _made(cast(type, hint), value)
    return hint if origin is None and isinstance(hint, type) and issubclass(hint, StrEnum) else None


def _made_unless_none(make: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else make(value)


def _made(cls: type, plain: dict[str, Any]) -> Any:
    values = {}
    for column in _columns(cls):
        value = plain if column.flat else plain.get(column.name)
        if value is None and column.later:
            continue
        values[column.name] = value if column.make is None else column.make(value)
    return cls(**values)


def _parsed(text: bytes, decoder: json.JSONDecoder) -> Any:
    try:
        value = decoder.decode(text.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if b"\\ud" in text or b"\\uD" in text:
        json.dumps(value, ensure_ascii=False).encode()
    if text.count(b"[") + text.count(b"{") > _DEEPEST:
        _refuse_deep(value)
    return value


def _whole(digits: str) -> int:
    value = int(digits)
    if not -_LARGEST <= value < _LARGEST:
        raise ValueError(f"{shown(digits)} does not fit into 64 bits")
    return value


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{shown(digits)} is out of range")
    return value


def _refuse_deep(value: Any) -> None:
    """Raises ValueError for a value with more than `_DEEPEST` levels of lists and objects."""
    level = [value]
    for _ in range(_DEEPEST):
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, (dict, list)))
        level = [each for values in inner for each in values]
        if not level:
            return
    raise ValueError(f"it has more than {_DEEPEST} levels of lists and objects")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")


_QUICK = json.JSONDecoder(parse_constant=_refuse)
_STRICT = json.JSONDecoder(parse_constant=_refuse, parse_int=_whole, parse_float=_finite)
