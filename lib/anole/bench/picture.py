"""Curves of searches over trials, as an SVG file: the mean cost of the best config, with a confidence band."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.bench.runs import Row
from anole.files import write_atomically
from anole.report.pages.page import VEGA_LITE

_COLORS = ("#000000", "#d55e00", "#0072b2", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#999933", "#882255", "#888888")
"""Mostly the colors of Okabe and Ito."""

_MAX_POINTS = 48

Point = Mapping[str, Any]


def points_of(panel: str, title: str, trials: Sequence[int], ratios: NDArray[np.float64]) -> list[Point]:
    """Return the points of a curve: the geometric mean over runs with its 95 % confidence interval.

    The ratios of costs to the optimum have shape (n_runs, n_points); points with infinity are omitted.
    """
    found: list[Point] = []
    for n, logs in zip(trials, np.log(ratios).T, strict=True):
        if np.isfinite(logs).all():
            error = 1.96 * logs.std(ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else 0.0
            ratio, low, high = np.exp([logs.mean(), max(0.0, logs.mean() - error), logs.mean() + error]).tolist()
            found.append({"panel": panel, "title": title, "trials": n, "ratio": ratio, "low": low, "high": high})
    return found


def points_of_runs(rows: Iterable[Row]) -> list[Point]:
    """Return the points of a file of `anole bench run`, with a panel for each family of problems."""
    runs: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        runs.setdefault((row["problem"].rpartition("/")[0], row["optimizer"]), []).append(row)
    points: list[Point] = []
    for (panel, optimizer), each in sorted(runs.items(), key=lambda item: item[0][0]):
        n_trials = min(int(row["trials"]) for row in each)
        trials = np.unique(np.geomspace(1, n_trials, _MAX_POINTS).astype(int))
        points += points_of(panel, optimizer, trials.tolist(), np.stack([_ratios(row)[trials - 1] for row in each]))
    return points


def _ratios(row: Row) -> NDArray[np.float64]:
    """Return the ratio of the best cost to the optimum after each trial of a run, shape (n_trials,)."""
    ratios = np.empty(int(row["trials"]))
    for step in row["curve"].split():
        trial, ratio = step.split(":")
        ratios[int(trial) - 1 :] = float(ratio)
    return ratios


def draw(points: Sequence[Point], path: Path) -> None:
    """Draw a panel for each kind of problems, with curves in the order of their first points."""
    import vl_convert

    titles = list(dict.fromkeys(point["title"] for point in points))
    y: dict[str, Any] = {"type": "quantitative", "scale": {"type": "log", "zero": False}}
    y["axis"] = {"title": "cost of the best config / optimum", "values": [1, 1.1, 1.2, 1.5, 2, 3, 4, 6, 8, 16, 32]}
    color = {
        "field": "title",
        "scale": {"domain": titles, "range": _COLORS},
        "legend": {"title": None, "symbolOpacity": 1},
    }
    trials = {"field": "trials", "type": "quantitative", "scale": {"type": "log", "base": 2}, "title": "trials"}
    band = {
        "mark": {"type": "area", "opacity": 0.15},
        "encoding": {"y": {"field": "low", **y}, "y2": {"field": "high"}},
    }
    line = {"mark": "line", "encoding": {"y": {"field": "ratio", **y}}}
    spec = {
        "data": {"values": points},
        "facet": {"column": {"field": "panel", "title": None, "sort": None}},
        "spec": {"width": 300, "height": 230, "layer": [band, line], "encoding": {"x": trials, "color": color}},
        "config": {"view": {"stroke": None}, "axis": {"gridOpacity": 0.4}},
    }
    write_atomically(path, vl_convert.vegalite_to_svg(spec, VEGA_LITE))
