"""Datasette's metadata from the cookbook: descriptions, units, facets, order and canned queries."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Mapping
from typing import Any

from anole.merge.schema import FORMER_TABLES
from anole.report.cookbook import (
    Recipe,
    TableDescription,
    column_text,
    cookbook,
    read_descriptions,
    read_recipes,
    with_empty_as_null,
)

DASHBOARD = "anole"
"""The name of the dashboard with all charts."""

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""The version of Vega-Lite in datasette-dashboards 0.8, which names an older one by default."""

_CONFIG = {"background": "#00000000", "axisY": {"labelLimit": 320}}
"""The Vega-Lite config of all charts."""

STATIC = "anole"
"""The URL path of the files in `static`."""

_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")

_DISPLAY: Mapping[str, Mapping[str, Any]] = {
    "task": {"facets": ["operator"], "sort": "label", "label_column": "label"},
    "run": {"facets": ["preset", "threads"], "sort_desc": "started_at", "label_column": "preset"},
    "trial": {"facets": ["status"]},
    "confirmation": {"facets": ["status"]},
    "build": {"facets": ["target", "preset", "model"], "sort_desc": "created_at", "label_column": "name"},
    "build_task": {"facets": ["matched"]},
    "model": {"label_column": "name"},
    "model_task": {"facets": ["model", "target"]},
    "evaluation": {"facets": ["reference"], "sort_desc": "speedup"},
    "size_latency": {"facets": ["reference"]},
    "load_latency": {"facets": ["engine", "neighbours"]},
    "best_trial": {"facets": ["preset", "confirmed"], "sort_desc": "gflops"},
    "best_of_run": {"facets": ["preset", "confirmed"], "sort_desc": "gflops"},
    "tuner_summary": {"sort_desc": "elapsed_s"},
    "model_latency": {"facets": ["target", "preset", "reference"], "sort_desc": "speedup"},
    "model_load_latency": {"facets": ["target", "preset", "neighbours"]},
    "task_usage": {"facets": ["target"], "sort_desc": "weight"},
    "failures": {"facets": ["status"], "sort_desc": "count"},
    "rejections": {"facets": ["target_kind", "reason"], "sort_desc": "share"},
}
"""The display of tables and views in Datasette: facets, order, and the column that labels a row.

Trials are too many to sort, or to count by columns without an index.
"""


def metadata(name: str, columns: Mapping[str, Collection[str]], task_label: str | None) -> dict[str, Any]:
    """Return Datasette's metadata for a database with the given name and columns of tables and views.

    Charts of a single task initially show the task with this label.
    """
    folder = cookbook()
    descriptions = read_descriptions((folder / "README.md").read_text(encoding="utf-8"))
    recipes = read_recipes(folder)
    tables = {table: _table(table, columns[table], descriptions) for table in descriptions if table in columns}
    tables |= {table: {**tables.get(table, {}), "hidden": True} for table in FORMER_TABLES}
    title = "Anole's records"
    return {
        "title": title,
        "extra_css_urls": [f"/{STATIC}/explore.css"],
        "description_html": f'Every trial, model and build. <a href="/-/dashboards/{DASHBOARD}">All charts</a>',
        "databases": {
            name: {
                "description_html": "The views at the end of the list and the queries answer most questions.",
                "tables": tables,
                # The hyphens keep a query from hiding a table or view with the same name.
                "queries": {key.replace("_", "-"): _query(recipe, task_label) for key, recipe in recipes.items()},
            }
        },
        "plugins": {
            "datasette-dashboards": {
                DASHBOARD: {
                    "title": title,
                    "description": "Charts of a single task show the task selected here.",
                    "filters": {"task": _task_filter(name, task_label)},
                    "charts": {key: _chart(name, recipe) for key, recipe in recipes.items() if recipe.chart},
                }
            }
        },
    }


def _table(name: str, columns: Collection[str], descriptions: Mapping[str, TableDescription]) -> dict[str, Any]:
    meanings = {column: column_text(descriptions, name, column) for column in columns}
    units = {"_s": "s", "_bytes": "B"}
    return {
        "description_html": _html(descriptions[name].text),
        "columns": {
            column: _LINK.sub(r"\1", meaning).replace("`", "") for column, meaning in meanings.items() if meaning
        },
        "units": {column: unit for column in columns for suffix, unit in units.items() if column.endswith(suffix)},
        **_DISPLAY.get(name, {}),
    }


def _query(recipe: Recipe, task_label: str | None) -> dict[str, Any]:
    facts = {"": recipe.remark, "<b>Units:</b> ": recipe.units, "<b>Measured:</b> ": recipe.measured}
    parts = [f"{name}{_html(fact)}" for name, fact in facts.items() if fact]
    if recipe.chart:
        parameter = f"?task={html.escape(task_label)}" if task_label else ""
        parts.append(f'<a href="/-/dashboards/{DASHBOARD}/{recipe.name}{parameter}">Chart</a>')
    return {"sql": with_empty_as_null(recipe), "title": recipe.question, "description_html": " ".join(parts) or None}


def _chart(database: str, recipe: Recipe) -> dict[str, Any]:
    renderer = {"library": "vega-lite", "display": {"$schema": _SCHEMA, "config": _CONFIG, **(recipe.chart or {})}}
    return {"title": recipe.question, "db": database, "query": with_empty_as_null(recipe), **renderer}


def _task_filter(database: str, label: str | None) -> dict[str, Any]:
    """Return the filter that selects the task of some charts."""
    query = "select distinct label from task join run on run.task_key = task.key order by label"
    return {"name": "Task", "type": "select", "db": database, "query": query, "default": label or ""}


def _html(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(_LINK.sub(r"\1", text), quote=False))
