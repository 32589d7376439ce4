"""The kinds of pictures of the report, in Vega-Lite's language; `anole.report.pages.page` gives them their colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from anole.report.pages.figure import Chart

Values = Sequence[Mapping[str, Any]]

_ROW = 24
"""Height of a row of a picture with a row for each name, in pixels."""

_HEIGHT = 300


def rows_of_points(
    values: Values, y: str, x: str, colour: str, title: str, *, low: str, high: str, reference: float | None = None
) -> Chart:
    """Returns a picture with a row for each name and in it a point with an interval for each colour.

    Args:
        values: the data.
        y: the field of the names.
        x: the field of the points.
        colour: the field of their colours.
        title: the title of the axis of points, with its unit.
        low: the field of an interval's lower end.
        high: that of its upper end.
        reference: where a vertical line is drawn.
    """
    most = max(Counter(each[y] for each in values).values())
    place: dict[str, Any] = {"y": {"field": y, "type": "nominal", "title": None, "axis": _NAMES}}
    if most > 1:
        place["yOffset"] = {"field": colour, "type": "nominal"}
    axis: dict[str, Any] = {
        "type": "quantitative",
        "title": title,
        "scale": _scale(values, (x, low, high), is_ratio=reference is not None),
        "axis": {"tickCount": 6, "labelOverlap": True, "format": "~g"},
    }
    tooltip = [{"field": name, "type": _kind(values, name)} for name in values[0]]
    coloured = {**place, "color": _colour(colour), "tooltip": tooltip}
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.6},
            "encoding": {**coloured, "x": {"field": low, **axis}, "x2": {"field": high}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
            "encoding": {**coloured, "x": {"field": x, **axis}},
        },
    ]
    if reference is not None:
        line = {"type": "rule", "strokeDash": [4, 4], "color": "currentColor", "opacity": 0.7}
        layers.append(
            {"mark": line, "data": {"values": [{"at": reference}]}, "encoding": {"x": {"field": "at", **axis}}}
        )
    height = max(len({each[y] for each in values}) * max(11 * most, _ROW), 60)
    return {**_beginning(values, colour, y), "height": height, "layer": layers}


def stacked_bars(values: Values, y: str, x: str, colour: str, title: str) -> Chart:
    """Returns a picture with a bar for each name that is divided by colours; the values are shares, of 1 as a rule."""
    totals = Counter[str]()
    for each in values:
        totals[each[y]] += each[x]
    return {
        **_beginning(values, colour, y),
        "height": max(len({each[y] for each in values}) * _ROW, 60),
        "mark": {"type": "bar"},
        "encoding": {
            "y": {"field": y, "type": "nominal", "title": None, "axis": _NAMES},
            "x": {
                "field": x,
                "type": "quantitative",
                "title": title,
                "scale": {"domain": [0, max(1.0, *totals.values())]},
                "axis": {"format": ".0%", "tickCount": 5},
            },
            "color": _colour(colour),
            "tooltip": [{"field": name, "type": _kind(values, name)} for name in values[0]],
        },
    }


def lines(
    values: Values, x: str, y: str, colour: str, titles: tuple[str, str], *, low: str, high: str, log: bool = False
) -> Chart:
    """Returns lines with bands.

    Args:
        values: the data.
        x: the field of the horizontal axis.
        y: that of the vertical axis.
        colour: that of the lines.
        titles: of the axes, with their units.
        low: the field of a band's lower edge.
        high: that of its upper edge.
        log: whether the horizontal axis is logarithmic.
    """
    across = {
        "field": x,
        "type": "quantitative",
        "title": titles[0],
        "scale": {"type": "log" if log else "linear", "nice": False},
        "axis": {"tickCount": max(1, min(6, int(values[-1][x]))), "format": "~s", "labelOverlap": True},
    }
    tooltip = [{"field": name, "type": _kind(values, name)} for name in values[0]]
    up = {"type": "quantitative", "title": titles[1], "axis": {"tickCount": 6}}
    return {
        **_beginning(values, colour),
        "height": _HEIGHT,
        "layer": [
            {
                "mark": {"type": "area", "opacity": 0.18, "interpolate": "step-after"},
                "encoding": {
                    "x": across,
                    "y": {"field": low, **up},
                    "y2": {"field": high},
                    "color": _colour(colour),
                },
            },
            {
                "mark": {"type": "line", "strokeWidth": 2, "interpolate": "step-after"},
                "encoding": {"x": across, "y": {"field": y, **up}, "color": _colour(colour)},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 18, "opacity": 0.9},
                "encoding": {"x": across, "y": {"field": y, **up}, "color": _colour(colour), "tooltip": tooltip},
            },
        ],
    }


def scatter(
    values: Values,
    x: str,
    y: str,
    colour: str,
    titles: tuple[str, str],
    *,
    line: Values = (),
    steps: bool = False,
    formats: tuple[str, str] = ("~g", "~g"),
) -> Chart:
    """Returns points, and lines beside them if there are any.

    Args:
        values: the points.
        x: the field of the horizontal axis.
        y: that of the vertical axis.
        colour: that of the colours.
        titles: of the axes, with their units.
        line: the points of the lines, with the same fields; without a colour's field, there is one line for all.
        steps: whether lines go from point to point in steps, as the edge of a front does.
        formats: how numbers are written on the axes, which are logarithmic.
    """
    scale = {"type": "log", "nice": False, "padding": 12}
    across, up = (
        {
            "field": field,
            "type": "quantitative",
            "title": title,
            "scale": scale,
            "axis": {"tickCount": 5, "format": written, "labelOverlap": True, "grid": False},
        }
        for field, title, written in zip((x, y), titles, formats, strict=True)
    )
    tooltip = [{"field": name, "type": _kind(values, name)} for name in values[0]]
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "point", "filled": True, "size": 50, "opacity": 0.75},
            "encoding": {"x": across, "y": up, "color": _colour(colour), "tooltip": tooltip},
        }
    ]
    if line:
        own = {"color": _colour(colour)} if colour in line[0] else {}
        mark = {"type": "line", "strokeWidth": 1.5, "opacity": 0.8}
        mark |= {} if own else {"color": "currentColor", "strokeDash": [4, 4]}
        mark |= {"interpolate": "step-after"} if steps else {}
        layers.insert(0, {"mark": mark, "data": {"values": list(line)}, "encoding": {"x": across, "y": up, **own}})
    return {**_beginning(values, colour), "height": _HEIGHT + 40, "layer": layers}


_NAMES = {"ticks": False, "domain": False, "grid": False}


def _beginning(values: Values, colour: str, names: str | None = None) -> dict[str, Any]:
    """Returns a picture's data, and how long the labels of its legend and the names of its rows are at most."""
    longest = {"legend": colour, **({} if names is None else {"names": names})}
    usermeta = {what: max(len(str(each[field])) for each in values) for what, field in longest.items()}
    return {"data": {"values": list(values)}, "usermeta": usermeta}


def _colour(field: str) -> dict[str, Any]:
    return {"field": field, "type": "nominal", "title": None}


def _kind(values: Values, name: str) -> str:
    return "nominal" if any(isinstance(each[name], str) for each in values) else "quantitative"


def _scale(values: Values, fields: Sequence[str], is_ratio: bool) -> dict[str, Any]:
    """Returns a logarithmic scale where the values are far apart and all above zero."""
    found = [each[name] for each in values for name in fields]
    if min(found) > 0 and max(found) > (_FAR_RATIOS if is_ratio else _FAR) * min(found):
        return {"type": "log", "nice": False, "padding": 10}
    return {"zero": not is_ratio}


_FAR, _FAR_RATIOS = 20, 4
"""The factors between values from which an axis is logarithmic: for quantities, and for ratios."""
