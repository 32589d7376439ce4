"""Fixtures of the merge tests."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from anole.merge.schema import create_tables, create_views

from ..record_project import dump_of


@pytest.fixture(scope="session")
def dump() -> Callable[[Path], dict[str, list[tuple[Any, ...]]]]:
    return dump_of


@pytest.fixture(scope="module")
def db() -> Iterator[sqlite3.Connection]:
    """An empty database with all tables and views."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.execute("pragma foreign_keys = on")
        create_tables(db)
        create_views(db)
        yield db
