"""A Datasette plugin that abbreviates keys of 64 digits, links them, and formats numbers."""

from __future__ import annotations

import re
from typing import Any

from datasette import hookimpl
from markupsafe import Markup

_KEY = re.compile(r"[0-9a-f]{64}")
_TABLES = {
    "task_key": "task",
    "run_key": "run",
    "source_task_key": "task",
    "source_run_key": "run",
    "example_run_key": "run",
}
_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@hookimpl  # type: ignore[untyped-decorator]
def render_cell(value: Any, column: str, table: str | None, database: str, datasette: Any) -> Markup | str | None:
    """Render a cell; return None for Datasette's default. A foreign key also shows the label of its row."""
    if isinstance(value, float):
        return _time(value) if column.endswith("_s") else f"{value:.6g}"
    key, label = (value["value"], value["label"]) if isinstance(value, dict) else (value, None)
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        return None
    target = _TABLES.get(column) or (table if column == "key" else None)
    short_key = Markup('<span title="{0}">{1}…</span>').format(key, key[:8])
    if target is None:
        return short_key
    link = datasette.urls.row(database, target, key)
    if label is None:
        return Markup('<a href="{0}">{1}</a>').format(link, short_key)
    return Markup('<a href="{0}">{1}</a> <em>{2}</em>').format(link, label, short_key)


def _time(value_s: float) -> str:
    """Format a time with a suitable unit, after a no-break space."""
    size_s, unit = next(
        (item for item in _TIME_UNITS if abs(value_s) >= item[0]), _TIME_UNITS[-1] if value_s else _TIME_UNITS[0]
    )
    digits = f"{value_s:,.0f}" if abs(value_s) >= 1000 else f"{value_s / size_s:.4g}"
    return f"{digits}\N{NO-BREAK SPACE}{unit}"
