"""Encode frozen dataclasses as plain JSON values and decode them; errors name the path of the offending value."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from enum import StrEnum
from functools import cache
from pathlib import PurePath
from types import NoneType
from typing import Annotated, Any, Literal, NoReturn, TypeVar, cast, get_args, get_origin, get_type_hints

from anole.errors import shown, suggestion
from anole.strict_json import LARGEST

T = TypeVar("T")

FLAT = "flat"
"""The annotation of a nested dataclass whose fields are stored among the outer dataclass's fields."""

LATER = "later"
"""The annotation of a field that files of older versions do not have; reading such a file sets its default."""

_PLAIN = frozenset({str, int, float, bool, NoneType})


@dataclass(frozen=True)
class Range:
    """The inclusive bounds of a number, for annotations such as ``Annotated[int, Range(1, 64)]``."""

    low: float
    high: float = math.inf

    def __str__(self) -> str:
        return f"from {self.low:.10g} to {self.high:.10g}" if self.high < math.inf else f"of at least {self.low:.10g}"


class DecodeError(ValueError):
    """A plain value that does not fit the dataclass.

    Attributes:
        place: the path of the value, such as ``tasks[3].flop``; empty for the entire value.
        problem: the value found and the allowed values, such as "is 'x', not an integer".
    """

    def __init__(self, place: str, problem: str) -> None:
        self.place, self.problem = place, problem
        super().__init__(f"{place or 'the value'} {problem}")

    def within(self, outer: str) -> DecodeError:
        """Return the error with its path prefixed by the path of an outer value."""
        dot = "" if not self.place or self.place.startswith("[") else "."
        return DecodeError(f"{outer}{dot}{self.place}", self.problem)


def encode(value: Any) -> Any:
    """Encode a dataclass, or the value of a field, as plain JSON values.

    Every field is written, None as null. Fields of a nested dataclass that is annotated as `FLAT` are stored among the
    outer dataclass's fields. The values of a mapping must be dataclasses or plain values.
    """
    if type(value) in _PLAIN:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain: dict[str, Any] = {}
        for column in _columns(type(value)):
            encoded = encode(getattr(value, column.name))
            plain |= encoded if column.flat else {column.name: encoded}
        return plain
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):
        has_dataclasses = dataclasses.is_dataclass(next(iter(value.values()), None))
        return {name: encode(item) for name, item in value.items()} if has_dataclasses else dict(value)
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    return str(value) if isinstance(value, PurePath) else value


def decode(cls: type[T], plain: object, strict: bool = False) -> T:
    """Decode a dataclass from a plain value, as returned by `encode`.

    In values written by users (`strict`), fields with a default may be absent, unknown fields are rejected, and
    integers are accepted as floats. In documents, only `LATER` fields may be absent, and unknown fields are ignored.
    In both, nullable fields may be absent.

    Raises:
        DecodeError: a field is missing, unknown or of the wrong type.
    """
    return cast(T, _reader(cast(Any, cls), strict).read(plain))


def decode_present(cls: type, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Decode only the fields of a dataclass that are present, strictly; see `decode`.

    Raises:
        DecodeError: a field is unknown, or its value is not allowed.
    """
    hints = {column.name: column.hint for column in _columns(cls)}
    _check_unknown(plain, hints)
    return {name: _read_at(name, _reader(hints[name], True), value) for name, value in plain.items()}


def later_fields_at_default(value: Any) -> frozenset[str]:
    """Return the names of a dataclass's `LATER` fields that have their defaults."""
    return frozenset(
        column.name
        for column in _columns(cast(type, type(value)))
        if column.later and getattr(value, column.name) == column.default
    )


def flat_fields(cls: type, prefix: str = "") -> Mapping[str, str]:
    """Map each key of a dataclass's plain form to its attribute path, such as ``measurement.status``."""
    paths: dict[str, str] = {}
    for column in _columns(cls):
        path = prefix + column.name
        paths |= flat_fields(column.hint, f"{path}.") if column.flat else {column.name: path}
    return paths


def json_fields(cls: type) -> frozenset[str]:
    """Return the names of a dataclass's fields whose values are objects or lists, including those of `FLAT` fields."""
    columns = _columns(cls)
    inner = (json_fields(column.hint) for column in columns if column.flat)
    direct = (column.name for column in columns if not column.flat and _reader(column.hint).types & {dict, list})
    return frozenset(direct).union(*inner)


class _NotAllowed(Exception):
    """Raised by a check to reject a value."""


@dataclass(frozen=True)
class _Column:
    """A field of a dataclass and its type, stripped of the `FLAT` and `LATER` annotations."""

    name: str
    hint: Any
    flat: bool
    later: bool
    default: Any


@dataclass(frozen=True)
class _Reader:
    """A decoder of one type hint: the accepted JSON types, their description for messages, and checks.

    Attributes:
        checks: by JSON type, the function that converts a value or raises `_NotAllowed`; values of other types in
            `types` are returned unchanged.
    """

    types: frozenset[type]
    allowed: str
    checks: Mapping[type, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)

    def read(self, value: object) -> Any:
        """Return the decoded value; raise DecodeError if it is not allowed."""
        check = self.checks.get(type(value), _identity if type(value) in self.types else _reject)
        try:
            return check(value)
        except _NotAllowed:
            raise DecodeError("", f"is {shown(value)}, not {self.allowed}") from None


@cache
def _columns(cls: type) -> tuple[_Column, ...]:
    hints = get_type_hints(cls, include_extras=True)
    columns = []
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        if FLAT in marks or LATER in marks:
            hint = get_args(hint)[0]
        columns.append(_Column(field.name, hint, FLAT in marks, LATER in marks, field.default))
    return tuple(columns)


@cache
def _reader(hint: Any, strict: bool = False) -> _Reader:
    """Return the reader of a type hint."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bounded_reader(_reader(arguments[0], strict), arguments[1])
    if origin in (typing.Union, types.UnionType):
        inner = _reader(next(argument for argument in arguments if argument is not NoneType), strict)
        return _Reader(inner.types | {NoneType}, f"{inner.allowed} or null", inner.checks)
    if origin is Literal:
        return _choice_reader({value: value for value in arguments})
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_reader(arguments[0], arguments[1], strict)
    if origin is not None and issubclass(origin, Sequence):
        return _list_reader(arguments, strict)
    if dataclasses.is_dataclass(hint):
        return _Reader(frozenset({dict}), "an object", {dict: _object_decoder(cast(type, hint), strict)})
    if issubclass(hint, StrEnum):
        return _choice_reader({member.value: member for member in hint})
    return _Reader(frozenset({int, float}), "a number", _FLOAT_CHECKS) if hint is float and strict else _SCALARS[hint]


def _object_decoder(cls: type, strict: bool) -> Callable[[dict[str, Any]], Any]:
    """Return the function that decodes a JSON object into a dataclass."""
    names = [column.name for column in _columns(cls)]
    steps = []
    for column in _columns(cls):
        reader = _reader(column.hint, strict)
        may_be_absent = column.later or (strict and column.default is not MISSING)
        # Most values need no conversion; skipping the function call makes reading shards faster.
        unconverted = reader.types - reader.checks.keys() - ({NoneType} if may_be_absent else set())
        steps.append((column.name, reader, unconverted, column, may_be_absent))

    def make(plain: dict[str, Any]) -> Any:
        if strict:
            _check_unknown(plain, names)
        values = {}
        for name, reader, unconverted, column, may_be_absent in steps:
            value = plain.get(name)
            if type(value) in unconverted:
                values[name] = value
            elif column.flat:
                values[name] = reader.read(plain)
            elif value is not None or (name in plain and not column.later):
                values[name] = _read_at(name, reader, value)
            elif not may_be_absent:
                raise DecodeError(name, "is missing")
        return cls(**values)

    return make


def _check_unknown(plain: Mapping[str, Any], known: typing.Collection[str]) -> None:
    for name in plain:
        if name not in known:
            raise DecodeError(str(name), f"is unknown; {suggestion(str(name), known)}")


def _read_at(place: str, reader: _Reader, value: object) -> Any:
    try:
        return reader.read(value)
    except DecodeError as error:
        raise error.within(place) from None


def _mapping_reader(key_hint: Any, value_hint: Any, strict: bool) -> _Reader:
    """Return the reader of an object with arbitrary keys; dataclass values are decoded."""
    if not dataclasses.is_dataclass(value_hint):
        return _Reader(frozenset({dict}), "an object")
    names, values = _reader(key_hint, strict), _reader(cast(Any, value_hint), strict)

    def read(plain: dict[str, Any]) -> dict[str, Any]:
        return {_read_at(name, names, name): _read_at(name, values, value) for name, value in plain.items()}

    return _Reader(frozenset({dict}), "an object", {dict: read})


def _list_reader(hints: tuple[Any, ...], strict: bool) -> _Reader:
    """Return the reader of a list: of any length for ``tuple[X, ...]``, otherwise of the length of the type hint."""
    if hints[-1] is Ellipsis or len(hints) == 1:
        item = _reader(hints[0], strict)
        return _Reader(frozenset({list}), "a list", {list: lambda items: _read_all(items, [item] * len(items))})
    readers = [_reader(hint, strict) for hint in hints]
    return _Reader(frozenset({list}), f"a list of {len(hints)} items", {list: lambda items: _read_all(items, readers)})


def _read_all(items: list[Any], readers: list[_Reader]) -> tuple[Any, ...]:
    if len(items) != len(readers):
        raise _NotAllowed
    return tuple(_read_at(f"[{n}]", reader, item) for n, (reader, item) in enumerate(zip(readers, items, strict=True)))


def _choice_reader(choices: Mapping[Any, Any]) -> _Reader:
    """Return the reader of an enumeration; `choices` maps each allowed value to its decoded form."""
    kinds = frozenset(map(type, choices))
    allowed = f"{'one of ' if len(choices) > 1 else ''}{', '.join(map(str, choices))}"
    return _Reader(
        kinds, allowed, dict.fromkeys(kinds, lambda value: choices[value] if value in choices else _reject(value))
    )


def _bounded_reader(reader: _Reader, bound: re.Pattern[str] | Range) -> _Reader:
    """Return a reader that also checks a text against a pattern, or a number against a range."""

    def fits(value: Any) -> bool:
        return bool(bound.fullmatch(value) if isinstance(bound, re.Pattern) else bound.low <= value <= bound.high)

    def check(value: Any) -> Any:
        return reader.checks.get(type(value), _identity)(value) if fits(value) else _reject(value)

    allowed = f"of the form {bound.pattern}" if isinstance(bound, re.Pattern) else f"{reader.allowed} {bound}"
    return _Reader(reader.types, allowed, dict.fromkeys(reader.types, check))


def _identity(value: Any) -> Any:
    return value


def _reject(value: object) -> NoReturn:
    raise _NotAllowed


def _check_64_bits(value: int) -> int:
    if not -LARGEST <= value < LARGEST:
        raise DecodeError("", f"is {shown(value)}, which does not fit into 64 bits")
    return value


def _check_finite(value: float) -> float:
    return value if math.isfinite(value) else _reject(value)


_SCALARS = {
    str: _Reader(frozenset({str}), "text"),
    bool: _Reader(frozenset({bool}), "true or false"),
    int: _Reader(frozenset({int}), "an integer", {int: _check_64_bits}),
    float: _Reader(frozenset({int, float}), "a number", {int: _check_64_bits}),
}
_FLOAT_CHECKS = {int: lambda value: float(_check_64_bits(value)), float: _check_finite}
"""The checks of floats in users' files: integers are converted to float."""
