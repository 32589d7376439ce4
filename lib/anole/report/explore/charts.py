"""A chart for each view of the database, as datasette-dashboards draws them with Vega-Lite."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

DASHBOARD = "anole"
"""The name of the page with all charts."""

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""The version of Vega-Lite that datasette-dashboards 0.8 brings; it names an older one itself."""


def _axis(field: str, kind: str, title: str, **more: Any) -> dict[str, Any]:
    return {"field": field, "type": kind, "title": title, **more}


def _bars(value: str, title: str, by: str, color: str | None = None) -> dict[str, Any]:
    """Returns horizontal bars in the order of the rows."""
    named = _axis(by, "nominal", "", sort=None, axis={"labelLimit": 320})
    drawn = {"x": _axis(value, "quantitative", title), "y": named}
    return {"mark": {"type": "bar", "tooltip": True}, "encoding": drawn | _colored(color)}


def _lines(x: tuple[str, str], y: tuple[str, str], color: str, dash: str | None = None) -> dict[str, Any]:
    encoding = {"x": _axis(x[0], "quantitative", x[1]), "y": _axis(y[0], "quantitative", y[1]), **_colored(color)}
    if dash is not None:
        encoding["strokeDash"] = _axis(dash, "nominal", dash)
    return {"mark": {"type": "line", "tooltip": True, "point": False}, "encoding": encoding}


def _points(x: tuple[str, str], y: tuple[str, str], color: str) -> dict[str, Any]:
    encoding = {"x": _axis(x[0], "quantitative", x[1]), "y": _axis(y[0], "quantitative", y[1]), **_colored(color)}
    return {"mark": {"type": "point", "filled": True, "size": 80, "tooltip": True}, "encoding": encoding}


def _colored(color: str | None) -> dict[str, Any]:
    return {} if color is None else {"color": _axis(color, "nominal", color.replace("_", " "))}


_CHARTS: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "model_latency": (
        "How many times as fast as its references is each build?",
        "select model || ' on ' || target || ', ' || preset as build, reference, speedup from model_latency "
        "order by speedup desc limit 40",
        _bars("speedup", "speedup over the reference", "build")
        | {
            "encoding": {
                **_bars("speedup", "speedup over the reference", "build", "reference")["encoding"],
                "yOffset": {"field": "reference"},
            }
        },
    ),
    "model_load_latency": (
        "How fast is each build beside busy processes (p95)?",
        "select model || ' on ' || target || ', ' || preset as build, reference, neighbours, p95_speedup "
        "from model_load_latency order by build, neighbours",
        _lines(("neighbours", "busy neighbours"), ("p95_speedup", "speedup of the p95"), "build", "reference"),
    ),
    "best_trial": (
        "Which tasks are fastest?",
        "select label || ' (' || preset || ')' as task, max(gflops) as gflops, confirmed from best_trial "
        "group by 1 order by gflops desc limit 24",
        _bars("gflops", "GFLOP/s", "task"),
    ),
    "best_of_run": (
        "How good is each run on the chosen task?",
        "select preset || ', seed ' || seed as run, preset, gflops, trials from best_of_run where label = :task "
        "order by gflops desc limit 60",
        _points(("trials", "trials"), ("gflops", "best GFLOP/s"), "preset"),
    ),
    "tuning_curve": (
        "How did the runs on the chosen task proceed?",
        "select number + 1 as trial, best_gflops, preset || ', seed ' || seed || ', ' || substr(run_key, 1, 6) as run "
        "from tuning_curve where label = :task and best_gflops > 0 and (number < 16 or number % 8 = 0) limit 4000",
        _lines(("trial", "trial"), ("best_gflops", "best GFLOP/s so far"), "run"),
    ),
    "tuner_summary": (
        "How long did the presets tune?",
        "select preset, round(sum(elapsed_s) / 3600, 3) as hours, count(*) as tasks, sum(trials) as trials "
        "from tuner_summary group by preset order by hours desc",
        _bars("hours", "hours of tuning", "preset"),
    ),
    "task_usage": (
        "Which tasks occur most often in the models?",
        "select label || ' (' || models || ')' as task, target, weight from task_usage order by weight desc limit 24",
        _bars("weight", "layers", "task", "target"),
    ),
    "failures": (
        "Why do candidates fail?",
        "select status || ': ' || coalesce(error, '') as reason, status, count from failures "
        "order by count desc limit 20",
        _bars("count", "trials", "reason", "status"),
    ),
    "rejections": (
        "Which constraints reject how much of the spaces?",
        "select reason, target_kind, 100.0 * sum(share) / (select count(*) from space) as percent from rejections "
        "group by reason, target_kind order by percent desc limit 24",
        _bars("percent", "percent of all configs", "reason", "target_kind"),
    ),
}


def charts(database: str, views: Collection[str]) -> dict[str, dict[str, Any]]:
    """Returns the charts of the views that a database has."""
    return {
        view: {
            "title": title,
            "db": database,
            "query": query,
            "library": "vega-lite",
            "display": {"$schema": _SCHEMA, **display},
        }
        for view, (title, query, display) in _CHARTS.items()
        if view in views
    }


def task_filter(database: str, label: str | None) -> dict[str, Any]:
    """Returns the filter by which people choose the task that some charts show."""
    query = "select distinct label from task join run on run.task_key = task.key order by label"
    chosen = {"name": "Task", "type": "select", "db": database, "query": query, "default": label or ""}
    return {"task": chosen}
