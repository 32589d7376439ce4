"""The pages of `anole explore`, served by Datasette over HTTP."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

from anole.errors import StoreError
from anole.report.cookbook import Recipe, column_text, cookbook, read_descriptions, read_recipes
from anole.report.explore import server
from anole.report.explore.metadata import DASHBOARD
from anole.report.explore.server import ExploreError, explore, serving

from ...measure.servers import free_port
from ...record_project import LOADS, Project
from ...terminal import anole

pytest.importorskip("datasette", reason="datasette is not installed (the extra `explore`)")
pytest.importorskip("datasette_dashboards", reason="datasette-dashboards is not installed (the extra `explore`)")

DESCRIPTIONS = read_descriptions((cookbook() / "README.md").read_text())
RECIPES = read_recipes(cookbook())
CHROMIUM = shutil.which("chromium")


class RunningServer:
    """A client of a running server."""

    def __init__(self, address: str) -> None:
        self.address = address

    def page(self, path: str) -> str:
        with urllib.request.urlopen(f"{self.address}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    def json(self, path: str) -> Any:
        return json.loads(self.page(path))


@contextmanager
def run_server(*command: str) -> Iterator[tuple[RunningServer, subprocess.Popen[bytes]]]:
    """Run a server on a free port until it exits or the block ends."""
    port = free_port()
    arguments = [*command, "--port", str(port)]
    with TemporaryFile("w+") as log, subprocess.Popen(arguments, stderr=log, stdout=log) as process:
        found = RunningServer(f"http://127.0.0.1:{port}")
        try:
            for _ in range(600):
                try:
                    found.page("/-/versions.json")
                    break
                except OSError:
                    assert process.poll() is None, log.seek(0) or log.read()
                    time.sleep(0.1)
            yield found, process
        finally:
            process.terminate()


@contextmanager
def serve(database: Path) -> Iterator[RunningServer]:
    """Serve a database until the block ends."""
    with run_server(*serving(database, database.with_name("metadata.json"))) as (found, _):
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("explored")
    project = Project(folder)
    project.fill()
    project.evaluate("resnet34-cpu", loads=LOADS)
    project.merge()
    with serve(project.database) as found:
        yield found


@pytest.mark.parametrize("name", sorted(DESCRIPTIONS))
def test_every_table_and_view_has_its_description_and_its_rows(site: RunningServer, name: str) -> None:
    page = site.page(f"/tuning/{name}")
    assert "column-descriptions" in page
    assert re.sub("`.*", "", DESCRIPTIONS[name].text).split(".")[0] in page.replace("<code>", "")
    for column in DESCRIPTIONS[name].columns:
        assert (f"<dt>{column}</dt>" in page) == (column_text(DESCRIPTIONS, name, column) is not None), column
    assert site.json(f"/tuning/{name}.json?_shape=array") or name == "warm_start"


def test_facets_are_counted(site: RunningServer) -> None:
    found = site.json("/tuning/trial.json")
    counts = {each["value"]: each["count"] for each in found["facet_results"]["status"]["results"]}
    assert counts == {"ok": 10, "run_error": 5}


def test_a_task_is_shown_by_its_label_before_its_key_and_times_have_units(site: RunningServer) -> None:
    page = site.page("/tuning/run")
    first = re.findall(r'<td class="col-(\S+) type', page)[0]
    assert first == "task_key"
    assert re.search(r"conv2d 64-&gt;64 k3x3 s1 56x56</a> <em><span title=\"[0-9a-f]{64}\">[0-9a-f]{8}…", page)
    page = site.page("/tuning/best_trial")
    assert re.findall(r'<th [^>]*data-column="(\w+)"', page)[0] == "label"
    assert ">2.2\N{NO-BREAK SPACE}ms<" in page


def test_a_key_leads_to_its_row(site: RunningServer) -> None:
    page = site.page("/tuning/best_trial")
    paths = re.findall(r'href="(/tuning/(?:task|run)/[0-9a-f]{64})"', page)
    assert len(paths) == 4
    assert "The tuning of one task" in site.page(next(path for path in paths if "/run/" in path))


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_recipes_of_the_cookbook_have_pages_with_rows(site: RunningServer, recipe: Recipe) -> None:
    page = site.page(f"/tuning/{to_dashes(recipe.name)}")
    assert recipe.question.split("?")[0].replace("'", "&#39;") in page
    assert (f"/-/dashboards/{DASHBOARD}/{recipe.name}" in page) == (recipe.chart is not None)
    rows = site.json(f"/tuning/{to_dashes(recipe.name)}.json?_shape=array")
    assert rows or recipe.name in ("wrong_machine", "rank_correlations")


def to_dashes(name: str) -> str:
    return name.replace("_", "-")


def test_a_parameter_of_a_query_filters(site: RunningServer) -> None:
    rows = site.json("/tuning/best-config-per-layer.json?_shape=array&model=resnet18")
    assert {row["model"] for row in rows} == {"resnet18"}


def test_each_chart_of_the_cookbook_has_a_query_with_rows(site: RunningServer) -> None:
    charts = site.json("/-/metadata.json")["plugins"]["datasette-dashboards"][DASHBOARD]["charts"]
    assert set(charts) == {name for name, recipe in RECIPES.items() if recipe.chart}
    task = "conv2d+64-%3E64+k3x3+s1+56x56"
    for name, chart in charts.items():
        sql = urllib.request.quote(chart["query"])
        assert site.json(f"/tuning.json?sql={sql}&_shape=array&task={task}") or name == "rank_correlations", name
        assert chart["title"] in html.unescape(site.page(f"/-/dashboards/{DASHBOARD}/{name}?task={task}"))
    assert task in site.page(f"/-/dashboards/{DASHBOARD}").replace("conv2d 64-&gt;64 k3x3 s1 56x56", task)


@pytest.mark.parametrize(
    ("value_s", "text"), [(0.0, "0 s"), (12345.6, "12,346 s"), (1.5, "1.5 s"), (2.05e-3, "2.05 ms"), (3e-10, "0.3 ns")]
)
def test_times_have_suitable_units(value_s: float, text: str) -> None:
    from anole.report.explore.plugins.anole_cells import render_cell

    assert render_cell(value_s, "latency_s", None, "tuning", None) == text.replace(" ", "\N{NO-BREAK SPACE}")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
@pytest.mark.parametrize(
    "path", ["/", "/tuning", "/tuning/trial", "/tuning/best_trial", "/tuning/time-spent", f"/-/dashboards/{DASHBOARD}"]
)
def test_pages_open_in_a_browser_without_an_error(site: RunningServer, tmp_path: Path, path: str) -> None:
    open_in_browser(site, path, tmp_path / "page.png")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
def test_charts_without_rows_cause_no_error_in_a_browser(project_database: Path, tmp_path: Path) -> None:
    with serve(project_database) as empty:
        open_in_browser(empty, f"/-/dashboards/{DASHBOARD}", tmp_path / "page.png")


def open_in_browser(site: RunningServer, path: str, picture: Path) -> None:
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    command += ["--virtual-time-budget=10000", f"--screenshot={picture}", f"{site.address}{path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    errors = [line for line in done.stderr.splitlines() if "CONSOLE" in line and '"WARN ' not in line]
    assert errors == [] and picture.stat().st_size > 10_000


def test_missing_datasette_is_reported_with_how_to_install_it(
    project_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    result = anole("explore", "--database", project_database)
    assert result.exit_code == 2
    assert result.stderr == (
        "anole: datasette is not installed; run `pip install 'anole[explore]'`, or `make explore` in a checkout\n"
    )


@pytest.fixture
def project_database(tmp_path: Path) -> Path:
    project = Project(tmp_path)
    project.merge()
    return project.database


def test_a_file_that_is_not_a_database_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="`anole merge` creates it"):
        explore(tmp_path / "tuning.sqlite", [])
    (tmp_path / "tuning.sqlite").write_text("no database" * 1000)
    with pytest.raises(StoreError, match="file is not a database"):
        explore(tmp_path / "tuning.sqlite", [])


@pytest.mark.guard
def test_an_empty_database_is_served_and_errors_of_datasette_are_reported(
    project_database: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    explore(project_database, ["--get", "/tuning.json"])
    assert json.loads(capfd.readouterr().out)["database"] == "tuning"
    with pytest.raises(ExploreError, match="datasette failed with exit code 2"):
        explore(project_database, ["--no-such-option"])


def test_terminating_the_command_stops_the_server(project_database: Path) -> None:
    command = [sys.executable, "-m", "anole", "explore", "--database", str(project_database)]
    with run_server(*command) as (site, process):
        process.terminate()
        assert process.wait(timeout=30) == 0
        with pytest.raises(OSError, match="refused"):
            site.page("/")
