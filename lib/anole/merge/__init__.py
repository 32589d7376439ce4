"""The merge stage: merge shards and documents into the database; import and export records."""

from __future__ import annotations

import sys


def _import_sqlite_utils() -> None:
    """Import sqlite-utils without pandas and NumPy, whose import takes up to 2 s if they are installed.

    sqlite-utils only looks up their types, and Anole stores no values of these types.
    """
    blocked = [name for name in ("pandas", "numpy") if name not in sys.modules]
    sys.modules.update(dict.fromkeys(blocked))  # type: ignore[arg-type]
    try:
        import sqlite_utils  # noqa: F401
    finally:
        for name in blocked:
            del sys.modules[name]


_import_sqlite_utils()
