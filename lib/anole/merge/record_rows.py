"""Converts records to database rows and back: a column for each field, with objects and lists as JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from anole.documents.plain import from_plain, json_fields, to_plain
from anole.keys import canonical_json

T = TypeVar("T")

Row = Mapping[str, Any]


def row_of(record: Any) -> dict[str, Any]:
    """Returns the row of a dataclass, including the fields of flat nested ones."""
    return {name: _cell(value) for name, value in to_plain(record).items()}


def record_of(cls: type[T], row: Row) -> T:
    """Returns the dataclass of a row that `row_of` made; columns that are not its fields are ignored.

    Raises:
        ValueError: the row does not match the dataclass.
    """
    return from_plain(cls, plain_of(row, json_fields(cls)))


def plain_of(row: Row, json_columns: frozenset[str]) -> dict[str, Any]:
    """Returns a row with the values of its JSON columns parsed."""
    parsed = {name: json.loads(row[name]) for name in json_columns if row.get(name) is not None}
    return {**row, **parsed}


def _cell(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        return canonical_json(value)
    return int(value) if isinstance(value, bool) else value
