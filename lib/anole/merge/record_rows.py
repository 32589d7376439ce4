"""Converts records to database rows: a column for each field, with objects and lists as JSON text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, cast

from anole.keys import canonical_json
from anole.merge import schema
from anole.plain import flat_fields, to_plain

_STORED = frozenset({str, int, float, type(None)})


def row_of(table: str, document: object, **others: Any) -> dict[str, Any]:
    """Returns a row of a table: of each column what the document says under its name, unless another value is given."""
    return {
        column: _cell(others[column] if column in others else getattr(document, column))
        for column in schema.columns()[table]
    }


def flat_row_of(record: Any) -> dict[str, Any]:
    """Returns the row of a dataclass, including the fields of flat nested ones."""
    return dict(zip(columns_of(type(record)), values_of(record), strict=True))


def columns_of(cls: type) -> tuple[str, ...]:
    """Returns the columns of a dataclass's rows; it has two or more."""
    return tuple(flat_fields(cls))


def values_of(record: Any, config: str | None = None) -> tuple[Any, ...]:
    """Returns the values of the dataclass's columns.

    Args:
        record: the dataclass.
        config: the JSON text of its config, if it has one and that is known already.
    """
    read, at = _reader(cast(type, type(record)))
    values = list(read(record))
    if config is not None:
        values[at] = config
    return tuple([value if type(value) in _STORED else _cell(value) for value in values])


@cache
def _reader(cls: type) -> tuple[Callable[[Any], Sequence[Any]], int]:
    """Returns what reads all columns of a dataclass, and the place of its config among them."""
    paths = flat_fields(cls)
    return attrgetter(*paths.values()), list(paths).index("config") if "config" in paths else -1


def _cell(value: Any) -> Any:
    plain = to_plain(value)
    if isinstance(plain, (dict, list)):
        return canonical_json(plain)
    return int(plain) if isinstance(plain, bool) else plain
