"""Render the report as one self-contained HTML file, in which all content of records is escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources
from string import Template
from urllib.parse import quote

from anole.report.pages.figure import MAX_ROWS, READERS, Download, Figure, MissingData, Section, Shown, Table

VEGA_LITE = "6.4"
"""The version of Vega-Lite of the charts."""

TITLE_END = ": Anole's report</title>"
"""The mark of a report, also of older versions; no title contains it, because titles are escaped."""

_GLOBALS = "window.vegaEmbed = vegaEmbed;"

_POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"
"""A policy that blocks all external content. Vega compiles expressions, hence `unsafe-eval`."""

_MAX_UNBROKEN_LENGTH = 40
"""Max length of texts in a column whose lines are not broken."""

_NUMBER = re.compile(r"[-+]?[\d.,]*(e[-+]\d+)?(\s?[±x%(].*)?$")


@dataclass(frozen=True)
class Page:
    """The content of a report: title, subtitle, key figures by name, and sections."""

    title: str
    facts: str
    tiles: Mapping[str, str]
    sections: Sequence[tuple[Section, Sequence[Shown]]]


def render(page: Page) -> str:
    """Return the HTML of a report."""
    body = _Body()
    main = "\n".join(body.sections(page.sections))
    scripts = [
        f'<script type="application/json" id="spec-{number}">{_in_script(json.dumps(chart, allow_nan=False))}</script>'
        for number, chart in enumerate(body.charts)
    ]
    if body.charts:
        scripts += [f"<script>{_library()}</script>", f"<script>{_resource('page.js')}</script>"]
    tiles = "".join(f'<div class="tile"><b>{escape(text)}</b>{escape(name)}</div>' for name, text in page.tiles.items())
    return Template(_resource("page.html")).substitute(
        policy=_POLICY,
        title=escape(page.title),
        title_end=TITLE_END,
        style=_resource("page.css"),
        facts=escape(page.facts),
        tiles=tiles,
        summary=_summary(page.sections),
        contents=_contents([section for section, _ in page.sections]),
        main=main,
        scripts="\n".join([*scripts, ""]),
    )


class _Body:
    """The HTML of the sections, and their charts in the order of the page."""

    def __init__(self) -> None:
        self.charts: list[Mapping[str, object]] = []

    def sections(self, sections: Sequence[tuple[Section, Sequence[Shown]]]) -> Iterator[str]:
        reader = None
        for section, figures in sections:
            if section.reader != reader:
                reader = section.reader
                yield f'<h2 id="{escape(reader)}">{escape(READERS[reader])}</h2>'
            yield f'<section id="{escape(section.key)}"><h3>{escape(section.title)}</h3>'
            for figure in figures:
                yield self._figure(figure, "" if figure.title == section.title else figure.title)
            yield "</section>"

    def _figure(self, figure: Shown, title: str) -> str:
        """Return a figure, or the remedy for its missing data, under a title, if there is one."""
        if isinstance(figure, MissingData):
            name = f"<b>{escape(title)}:</b> " if title else ""
            return f'<p class="missing">{name}{_prose(figure.remedy)}</p>'
        parts = ["<figure>", f"<h4>{escape(title)}</h4>" if title else "", _caption(figure)]
        if figure.chart is not None:
            name = f"spec-{len(self.charts)}"
            self.charts.append({**figure.chart, "description": figure.title})
            parts.append(f'<div class="chart" data-spec="{name}"></div>')
        if figure.table is not None:
            parts.append(_table(figure.table))
        parts += [_download(download) for download in figure.downloads]
        for query in figure.queries:
            count = f"{len(query.rows):,} row{'s' * (len(query.rows) != 1)}"
            parts.append(
                f'<details><summary>SQL ({count})</summary><pre class="sql">{escape(query.sql)}</pre></details>'
            )
        return "\n".join([*parts, "</figure>"])


def _summary(sections: Sequence[tuple[Section, Sequence[Shown]]]) -> str:
    items = (
        f'<li>{_prose(figure.headline)} <a href="#{escape(section.key)}">More</a></li>'
        for section, figures in sections
        for figure in figures
        if isinstance(figure, Figure) and figure.headline
    )
    return f'<ul class="summary">{"".join(items)}</ul>'


def _contents(sections: Sequence[Section]) -> str:
    parts = ['<nav aria-label="Contents">']
    for reader, title in READERS.items():
        group = [section for section in sections if section.reader == reader]
        items = "".join(f'<li><a href="#{escape(item.key)}">{escape(item.title)}</a></li>' for item in group)
        parts.append(f'<div><a href="#{escape(reader)}"><b>{escape(title)}</b></a><ul>{items}</ul></div>')
    return "\n".join([*parts, "</nav>"])


def _caption(figure: Figure) -> str:
    facts = {"Units": figure.units, "n": figure.n, "Measured": figure.method}
    text = " ".join(f"<b>{name}:</b> {_prose(fact)}" for name, fact in facts.items() if fact)
    return f"<figcaption>{text}</figcaption>"


def _table(table: Table) -> str:
    shown_rows = table.rows[:MAX_ROWS]
    attrs = [_class_attribute([row[column] for row in shown_rows]) for column in range(len(table.columns))]
    head = "".join(f"<th{attr}>{escape(name)}</th>" for name, attr in zip(table.columns, attrs, strict=True))
    rows = (
        "<tr>" + "".join(f"<td{attr}>{escape(cell)}</td>" for cell, attr in zip(row, attrs, strict=True)) + "</tr>"
        for row in shown_rows
    )
    n_more = len(table.rows) - len(shown_rows)
    rest = f'<p class="faint">{n_more:,} more rows are not shown.</p>' if n_more else ""
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>{rest}'
    )


def _class_attribute(cells: Sequence[str]) -> str:
    """Return the class attribute of a column's cells: numbers are right-aligned, long texts are wrapped."""
    if all(map(_NUMBER.match, cells)):
        return ' class="number"'
    return ' class="long"' if max(map(len, cells)) > _MAX_UNBROKEN_LENGTH else ""


def _download(download: Download) -> str:
    name = escape(download.name)
    link = f'<a download="{name}" href="data:application/json;charset=utf-8,{quote(download.text)}">Save {name}</a>'
    return f'<details><summary>{name}</summary><p>{link}</p><pre class="file">{escape(download.text)}</pre></details>'


def _prose(text: str) -> str:
    """Return the HTML of a sentence: backticks as code, and links between files as plain text."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)))


def _in_script(text: str) -> str:
    """Escape JSON for use in a script element."""
    return text.replace("<", "\\u003c")


def _resource(name: str) -> str:
    return resources.files("anole.report.pages").joinpath(name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle(_GLOBALS, VEGA_LITE)
    return bundle.replace("</script", "<\\/script")
