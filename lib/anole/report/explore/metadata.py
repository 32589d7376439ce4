"""What Datasette shows beside the rows: descriptions, units, facets, order and canned queries, from the cookbook."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Mapping
from typing import Any

from anole.merge.schema import FORMER_TABLES
from anole.report.cookbook import (
    Description,
    Recipe,
    column_text,
    cookbook,
    read_descriptions,
    read_recipes,
    with_empty_as_null,
)

DASHBOARD = "anole"
"""The name of the page with all charts."""

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""The version of Vega-Lite that datasette-dashboards 0.8 brings; it names an older one itself."""

_CONFIG = {"background": "#00000000", "axisY": {"labelLimit": 320}}
"""How charts are drawn here."""

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
    recipes = read_recipes(folder)
    tables = {each: _table(each, columns[each], descriptions) for each in descriptions if each in columns}
    tables |= {each: {**tables.get(each, {}), "hidden": True} for each in FORMER_TABLES}
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
                "queries": {each.replace("_", "-"): _canned(recipe, task_label) for each, recipe in recipes.items()},
            }
        },
        "plugins": {
            "datasette-dashboards": {
                DASHBOARD: {
                    "title": title,
                    "description": "Those of one task show the task that is chosen here.",
                    "filters": {"task": _task_filter(name, task_label)},
                    "charts": {each: _chart(name, recipe) for each, recipe in recipes.items() if recipe.chart},
                }
            }
        },
    }


def _table(name: str, columns: Collection[str], descriptions: Mapping[str, Description]) -> dict[str, Any]:
    told = {column: column_text(descriptions, name, column) for column in columns}
    found: dict[str, Any] = {
        "description_html": _html(descriptions[name].text),
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


def _canned(recipe: Recipe, task_label: str | None) -> dict[str, Any]:
    facts = {"": recipe.remark, "<b>Units:</b> ": recipe.units, "<b>Measured:</b> ": recipe.measured}
    told = [f"{name}{_html(fact)}" for name, fact in facts.items() if fact]
    if recipe.chart:
        chosen = f"?task={html.escape(task_label)}" if task_label else ""
        told.append(f'<a href="/-/dashboards/{DASHBOARD}/{recipe.name}{chosen}">Chart</a>')
    return {"sql": with_empty_as_null(recipe), "title": recipe.question, "description_html": " ".join(told) or None}


def _chart(database: str, recipe: Recipe) -> dict[str, Any]:
    shown = {"library": "vega-lite", "display": {"$schema": _SCHEMA, "config": _CONFIG, **(recipe.chart or {})}}
    return {"title": recipe.question, "db": database, "query": with_empty_as_null(recipe), **shown}


def _task_filter(database: str, label: str | None) -> dict[str, Any]:
    """Returns the filter by which people choose the task that some charts show."""
    query = "select distinct label from task join run on run.task_key = task.key order by label"
    return {"name": "Task", "type": "select", "db": database, "query": query, "default": label or ""}


def _html(text: str) -> str:
    linkless = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(linkless, quote=False))


def _plain(text: str) -> str:
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text).replace("`", "")
