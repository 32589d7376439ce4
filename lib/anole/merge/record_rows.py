"""Converts records to database rows: a column for each field, with objects and lists as JSON text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anole.documents.plain import to_plain
from anole.keys import canonical_json

Row = Mapping[str, Any]


def row_of(record: Any) -> dict[str, Any]:
    """Returns the row of a dataclass, including the fields of flat nested ones."""
    return {name: _cell(value) for name, value in to_plain(record).items()}


def _cell(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        return canonical_json(value)
    return int(value) if isinstance(value, bool) else value
