"""What Datasette shows beside the rows: descriptions, units, facets, order and canned queries, from the cookbook."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Mapping
from typing import Any

from anole.merge.cookbook import (
    Description,
    Query,
    column_text,
    cookbook,
    read_descriptions,
    read_queries,
    with_empty_as_null,
)
from anole.merge.schema import FORMER_TABLES
from anole.report.explore.charts import DASHBOARD, charts, task_filter

STATIC = "anole"
"""Under this name the files of `static` are served."""

_FACETS = {
    "task": ["operator"],
    "run": ["preset", "threads"],
    "trial": ["status"],
    "confirmation": ["status"],
    "build": ["target", "preset", "model"],
    "build_task": ["matched"],
    "model_task": ["model", "target"],
    "evaluation": ["reference"],
    "load_latency": ["engine", "neighbours"],
    "best_trial": ["preset", "confirmed"],
    "best_of_run": ["preset", "confirmed"],
    "model_latency": ["target", "preset", "reference"],
    "model_load_latency": ["target", "preset", "neighbours"],
    "task_usage": ["target"],
    "failures": ["status"],
    "rejections": ["target_kind", "reason"],
}
"""Of each table and view the columns with few values. Of trials only the one that has an index is counted in time."""

_SORTED: Mapping[str, tuple[str, str]] = {
    "task": ("sort", "label"),
    "run": ("sort_desc", "started_at"),
    "build": ("sort_desc", "created_at"),
    "evaluation": ("sort_desc", "speedup"),
    "best_trial": ("sort_desc", "gflops"),
    "best_of_run": ("sort_desc", "gflops"),
    "tuner_summary": ("sort_desc", "elapsed_s"),
    "model_latency": ("sort_desc", "speedup"),
    "task_usage": ("sort_desc", "weight"),
    "failures": ("sort_desc", "count"),
    "rejections": ("sort_desc", "share"),
}
"""In which order rows are shown; where nothing is said, by key. There are too many trials to sort."""

_LABELS = {"task": "label", "run": "preset", "model": "name", "build": "name"}
"""What a reference to a row shows instead of its key."""


def metadata(name: str, columns: Mapping[str, Collection[str]], task_label: str | None) -> dict[str, Any]:
    """Returns Datasette's metadata for a database.

    Args:
        name: what Datasette calls it.
        columns: the columns of each of its tables and views.
        task_label: the task that charts of one task begin with; None if there is none.
    """
    folder = cookbook()
    descriptions = read_descriptions((folder / "README.md").read_text(encoding="utf-8"))
    tables = {each: _table(each, columns[each], descriptions, task_label) for each in descriptions if each in columns}
    tables |= {each: {**tables.get(each, {}), "hidden": True} for each in FORMER_TABLES}
    drawn = charts(name, [each for each in descriptions if each in columns and descriptions[each].is_view])
    title = "Anole's records"
    return {
        "title": title,
        "extra_css_urls": [f"/{STATIC}/explore.css"],
        "description_html": f'Every trial, model and build. <a href="/-/dashboards/{DASHBOARD}">All charts</a>',
        "databases": {
            name: {
                "description_html": "The views, at the end of the list, answer most questions; so do the queries.",
                "tables": tables,
                # No table or view has such a name, which would hide it.
                "queries": {query.name.replace("_", "-"): _canned(query) for query in read_queries(folder)},
            }
        },
        "plugins": {
            "datasette-dashboards": {
                DASHBOARD: {
                    "title": title,
                    "description": "A chart for each view; those of one task show the task that is chosen here.",
                    "filters": task_filter(name, task_label),
                    "charts": drawn,
                }
            }
        },
    }


def _table(
    name: str, columns: Collection[str], descriptions: Mapping[str, Description], task_label: str | None
) -> dict[str, Any]:
    text = _html(descriptions[name].text)
    if descriptions[name].is_view:
        chosen = f"?task={html.escape(task_label)}" if task_label else ""
        text += f' <a href="/-/dashboards/{DASHBOARD}/{name}{chosen}">Chart</a>'
    told = {column: column_text(descriptions, name, column) for column in columns}
    found: dict[str, Any] = {
        "description_html": text,
        "columns": {column: _plain(meaning) for column, meaning in told.items() if meaning},
        "units": {column: unit for column in columns if (unit := _unit(column))},
    }
    if name in _FACETS:
        found["facets"] = _FACETS[name]
    if name in _SORTED:
        order, column = _SORTED[name]
        found[order] = column
    if name in _LABELS:
        found["label_column"] = _LABELS[name]
    return found


def _unit(column: str) -> str | None:
    if column.endswith("_s"):
        return "s"
    return "B" if column.endswith("_bytes") else None


def _canned(query: Query) -> dict[str, Any]:
    return {"sql": with_empty_as_null(query), "title": query.question, "description": query.remark or None}


def _html(text: str) -> str:
    linkless = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(linkless, quote=False))


def _plain(text: str) -> str:
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text).replace("`", "")
