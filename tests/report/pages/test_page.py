"""The page is one self-contained file, escapes content of records, and renders without errors at two widths."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from anole.__main__ import main
from anole.documents import layout
from anole.project.pipeline import Pipeline
from anole.report.pages.report import all_sections

from ...record_project import Project
from .conftest import HOSTILE, HOSTILE_PRESET, OLD, write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@dataclass
class Element:
    """An HTML element with its attributes and text."""

    tag: str
    attributes: dict[str, str | None]
    text: str = ""


@dataclass
class Parsed(HTMLParser):
    """A parser that collects all elements of a page, in order."""

    elements: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs)))
        if tag not in ("meta", "link", "img"):
            self._open.append(self.elements[-1])

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop().tag != tag:
            pass

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, tag: str, **wanted: str) -> Iterator[Element]:
        for element in self.elements:
            if element.tag == tag and all(element.attributes.get(name.strip("_")) == wanted[name] for name in wanted):
                yield element


def parse(page: str) -> Parsed:
    parsed = Parsed()
    parsed.feed(page)
    parsed.close()
    return parsed


@pytest.fixture(scope="module")
def page(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_report(recorded, tmp_path_factory.mktemp("page") / "report.html")


def test_the_page_has_every_section_and_a_table_of_contents(page: str) -> None:
    parsed = parse(page)
    assert [each.attributes["id"] for each in parsed.all("section")] == [each.key for each in all_sections()]
    ids = {each.attributes.get("id") for each in parsed.elements}
    links = {each.attributes["href"] for each in parsed.all("a") if (each.attributes["href"] or "").startswith("#")}
    assert {f"#{section.key}" for section in all_sections()} <= links <= {f"#{name}" for name in ids}
    missing = [element.text for element in parsed.all("p", class_="missing")]
    assert missing and not any("](" in text for text in missing), "links between files of the docs would be broken"


def title(page: str) -> str:
    (found,) = parse(page).all("h1")
    return found.text


def test_the_title_names_models_and_targets(page: str, npu_project: Path, tmp_path: Path) -> None:
    assert title(page) == f"{HOSTILE}, resnet18, resnet34 on cpu"
    assert title(write_report(npu_project, tmp_path / "report.html")) == "net on npu"
    project = Project(tmp_path)
    for number in range(4):
        project.extract(f"net{number}", [(project.CONV, 1)])
        project.compile(f"net{number}", [(project.CONV, 1, None)])
    project.merge()
    assert title(write_report(tmp_path, tmp_path / "report.html")) == "4 models on cpu"


def test_every_figure_has_units_a_count_a_method_and_sql_that_runs(page: str, recorded: Path) -> None:
    parsed = parse(page)
    captions = [each.text for each in parsed.all("figcaption")]
    queries = [each.text for each in parsed.all("pre", _class="sql")]
    assert len(captions) == len(list(parsed.all("figure"))) >= 12
    assert all("n:" in caption and "Measured:" in caption for caption in captions)
    connection = sqlite3.connect(f"file:{recorded / layout.DATABASE}?mode=ro", uri=True)
    summaries = [each.text for each in parsed.all("summary") if each.text.startswith("SQL")]
    for query, summary in zip(queries, summaries, strict=True):
        count = len(connection.execute(query, defaultdict(lambda: None)).fetchall())
        assert summary == f"SQL ({count:,} row{'s' * (count != 1)})" and count
    connection.close()


def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    parsed = parse(page)
    assert not [each for each in parsed.elements if each.attributes.get("src")]
    assert all((each.attributes["href"] or "").startswith("data:") for each in parsed.all("link"))
    (policy,) = (each for each in parsed.all("meta") if each.attributes.get("http-equiv") == "Content-Security-Policy")
    assert (policy.attributes["content"] or "").startswith("default-src 'none';")


def test_content_of_records_is_escaped(page: str) -> None:
    parsed = parse(page)
    assert not list(parsed.all("img")) and not [each for each in parsed.all("b") if "&amp;" in each.text]
    cells = {each.text for each in parsed.all("td")}
    assert f"{HOSTILE}-cpu" in cells and HOSTILE_PRESET in cells
    specs = [json.loads(each.text) for each in parsed.all("script", type="application/json")]
    assert any(HOSTILE_PRESET in json.dumps(spec, ensure_ascii=False).replace('\\"', '"') for spec in specs)


def test_the_page_stays_small(page: str) -> None:
    assert len(page) < 1_200_000


MEASURE = """
<script>
addEventListener("error", event => { document.body.dataset.failed = event.message; });
(async () => {
  while (!document.documentElement.dataset.done) await new Promise(resume => setTimeout(resume, 20));
  const facts = { width: innerWidth, scroll: document.documentElement.scrollWidth, charts: [], wide: [] };
  facts.failed = document.body.dataset.failed || "";
  for (const place of document.querySelectorAll(".chart")) {
    const svg = place.querySelector("svg"), box = svg && svg.getBoundingClientRect();
    const texts = [...place.querySelectorAll("svg text")];
    facts.charts.push({
      marks: place.querySelectorAll(".role-mark path, .role-mark rect, .role-mark line").length,
      legends: place.querySelectorAll(".role-legend-label text").length,
      size: Math.min(...texts.map(text => parseFloat(getComputedStyle(text).fontSize))),
      right: box ? box.right : 0,
      clipped: texts.filter(text => {
        const own = text.getBoundingClientRect();
        return own.width && (own.left < box.left - 2 || own.right > box.right + 2 || own.bottom > box.bottom + 2);
      }).map(text => text.textContent),
    });
  }
  for (const each of document.querySelectorAll("main *")) {
    const right = each.getBoundingClientRect().right;
    if (!each.closest(".scroll, pre, svg") && right > innerWidth + 1) facts.wide.push(each.tagName);
  }
  parent.postMessage(JSON.stringify(facts), "*");
})();
</script>
"""

FRAME = """
<!doctype html><pre id="facts"></pre>
<iframe src="page.html" style="width: {width}px; height: 2000px; border: 0"></iframe>
<script>addEventListener("message", event => {{ document.getElementById("facts").textContent = event.data; }});</script>
"""
"""A frame, because a window cannot be narrower than 500 pixels."""


def draw(page: str, folder: Path, width: int) -> tuple[dict[str, Any], list[str]]:
    """Open a page in a browser without network; return the results of `MEASURE`, and the lines of the console."""
    before, after = page.rsplit("</body>", 1)
    (folder / "page.html").write_text(f"{before}{MEASURE}</body>{after}", encoding="utf-8")
    frame = folder / "frame.html"
    frame.write_text(FRAME.format(width=width), encoding="utf-8")
    assert CHROMIUM is not None
    command = [
        *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *(f"--user-data-dir={folder / 'profile'}", "--proxy-server=127.0.0.1:9", "--window-size=1600,2000"),
        *("--enable-logging=stderr", "--v=0", "--virtual-time-budget=20000", "--dump-dom", frame.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    (facts,) = (each.text for each in parse(done.stdout).all("pre", id="facts"))
    return json.loads(facts), re.findall(r"^.*:CONSOLE.*$", done.stderr, re.MULTILINE)


@pytest.mark.guard
@needs_browser
@pytest.mark.parametrize(
    ("width", "project", "min_charts"), [(400, "recorded", 13), (1400, "recorded", 13), (400, "npu_project", 1)]
)
def test_a_browser_draws_every_chart(
    request: pytest.FixtureRequest, tmp_path: Path, width: int, project: str, min_charts: int
) -> None:
    page = write_report(request.getfixturevalue(project), tmp_path / "report.html")
    facts, console = draw(page, tmp_path, width)
    assert console == [] and facts["failed"] == ""
    assert facts["width"] == width
    assert facts["scroll"] <= width and facts["wide"] == []
    specs = [json.loads(each.text) for each in parse(page).all("script", type="application/json")]
    assert len(facts["charts"]) == len(specs) >= min_charts
    for chart, spec in zip(facts["charts"], specs, strict=True):
        description = spec["description"]
        assert chart["marks"] > 0 and chart["size"] >= 11, description
        assert (chart["legends"] > 0) == ('"color": {"' in json.dumps(spec)), description
        assert chart["right"] <= width and chart["clipped"] == [], description


@pytest.mark.guard
@needs_browser
def test_a_broken_chart_is_detected(page: str, tmp_path: Path) -> None:
    facts, console = draw(page.replace('"type": "point"', '"type": "pint"'), tmp_path, 800)
    assert console and any(chart["marks"] == 0 for chart in facts["charts"])


def table_rows(page: str, key: str) -> list[list[Element]]:
    start = page.index(f'<section id="{key}">')
    parsed = parse(page[start : page.index("</section>", start)])
    cells = list(parsed.all("td"))
    columns = len(list(parsed.all("th")))
    return [cells[at : at + columns] for at in range(0, len(cells), columns)]


def test_unfinished_builds_are_listed_with_their_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(Path(__file__).parents[2] / "tiny_networks.py", tmp_path / "tiny.py")
    models = tmp_path / "models.yaml"
    models.write_text(
        "models:\n"
        "  net: {source: 'torch:tiny:residual', inputs: {x: [1, 3, 16, 16]}}\n"
        "  other: {source: 'torch:tiny:residual', inputs: {x: [1, 3, 32, 32]}}\n"
        "targets: {npu: {kind: vta}}\n"
        "tuning: {trials: 2}\n"
        "builds:\n"
        "  - {model: net, target: npu, name: tuned}\n"
        "  - {model: other, target: npu, name: extracted}\n"
    )
    assert CliRunner().invoke(main, ["extract", "net", "--target", "npu"]).exit_code == 0
    pipeline = Pipeline.load(models)
    receipts = pipeline.receipts(pipeline.spec.builds["tuned"])
    logs = {
        "logs/extract/other-npu.log": "anole: a warning\nanole: model other: it has <no> layers\nlater\n",
        str(receipts[1]).replace("work/tuned", "logs/tune").replace(".json", ".log"): "anole: no space\n",
    }
    for name, text in logs.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    Project(tmp_path).merge()
    rows = [[cell.text for cell in row] for row in table_rows(write_report(tmp_path, Path("report.html")), "held_back")]
    assert rows == [
        ["tuned", "compile", f"{len(receipts)} tuning jobs left: no space"],
        ["extracted", "extract", "model other: it has <no> layers"],
    ]


@pytest.mark.parametrize(
    ("project", "output", "message"),
    [
        (None, "report.html", "there is no database; `anole merge` creates it"),
        ("old", "report.html", "`anole merge` updates a database of an older version"),
        ("recorded", ".", "is a directory"),
        ("recorded", "mine.html", "is not a report of Anole, so was not overwritten"),
    ],
)
def test_bad_databases_and_outputs_are_rejected(
    recorded: Path, tmp_path: Path, project: str | None, output: str, message: str
) -> None:
    mine = tmp_path / "mine.html"
    mine.write_text("<p>mine</p>")
    database = {"old": OLD, "recorded": recorded}.get(project or "", tmp_path) / layout.DATABASE
    result = CliRunner().invoke(main, ["report", "--database", str(database), "--output", str(tmp_path / output)])
    assert result.exit_code == 2 and message in result.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == [mine] and mine.read_text() == "<p>mine</p>"
