"""Merges all shards and documents into the database, and imports the records of other databases."""

from __future__ import annotations

import sys


def _import_sqlite_utils() -> None:
    """Import sqlite-utils without pandas and NumPy, which it otherwise imports where they are, for up to 2 s.

    It only looks up their types, none of which is ever stored here.
    """
    apart = [name for name in ("pandas", "numpy") if name not in sys.modules]
    sys.modules.update(dict.fromkeys(apart))  # type: ignore[arg-type]
    try:
        import sqlite_utils  # noqa: F401
    finally:
        for name in apart:
            del sys.modules[name]


_import_sqlite_utils()
