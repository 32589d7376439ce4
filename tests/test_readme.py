"""README and docs: their examples, queries, links and commands work."""

from __future__ import annotations

import re
import sqlite3
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Context

from anole.__main__ import main
from anole.bench.runs import leaderboard, read_runs
from anole.bench.tables import names
from anole.config.reading import parse_spec
from anole.merge.database import merge_files
from anole.project.hardware import describe_target
from anole.project.job_resources import node_resources
from anole.project.pipeline import Pipeline
from anole.targets.base import DeviceLocation

HOME = Path(__file__).parents[1]
PAGES = [HOME / "README.md", *sorted((HOME / "docs").rglob("*.md"))]
LINKED = [*PAGES, HOME / "CHANGELOG.md", HOME / "db/README.md"]
PYPROJECT = tomllib.loads((HOME / "pyproject.toml").read_text())


def relative(page: Path) -> str:
    return str(page.relative_to(HOME))


def queries(page: Path) -> list[str]:
    text = page.read_text()
    return [*re.findall(r'sqlite3 [^"]*"([^"]+)"', text), *re.findall(r"```sql\n(.*?)```", text, re.DOTALL)]


def test_the_remote_targets_in_the_docs_are_valid() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", (HOME / "docs/machines.md").read_text(), re.DOTALL)
    (targets,) = [yaml.safe_load(example)["targets"] for example in examples if "rpc" in example]
    models = {"net": {"source": "torchvision:alexnet", "inputs": {"x": [1, 3, 64, 64]}}}
    spec = parse_spec({"models": models, "targets": targets, "builds": [{"model": "net", "target": "h200"}]})
    assert [target.remote.key for target in spec.targets.values() if target.remote] == ["h200", "board", None, None]
    assert [describe_target(target)["kind"] for target in spec.targets.values()] == ["cuda", "cpu", "cuda", "cuda"]


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as on GitHub."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_query_runs(page: Path, tmp_path: Path) -> None:
    merge_files(tmp_path / "shards", [], [], [], tmp_path / "tuning.sqlite")
    with sqlite3.connect(tmp_path / "tuning.sqlite") as database:
        found = [database.execute(query).fetchall() for query in queries(page)]
    assert found or page != PAGES[0]


def test_the_models_yaml_in_the_readme_is_valid(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGES[0].read_text(), re.DOTALL)
    (tmp_path / "models.yaml").write_text(example)
    assert list(Pipeline.load(tmp_path / "models.yaml").spec.builds) == ["resnet18-cpu-anole"]


def test_the_examples_of_the_page_on_models_yaml_are_valid() -> None:
    page = (HOME / "docs/models.md").read_text()
    example, ranges, absent = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    assert list(parse_spec({**example, **ranges}).models["resnet18"].ranges) == ["batch"]
    assert list(parse_spec(example).builds) == ["resnet18-cpu-anole", "resnet18-by-chance"]
    skipped = parse_spec({**example, **absent, "builds": [{"model": "resnet18", "target": "gpu"}]})
    assert not skipped.targets["gpu"].required


def test_the_examples_of_the_page_on_the_bench_run(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = re.findall(r"```python\n(.*?)```", (HOME / "docs/bench.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(first, names)
    ratio, by_chance = (float(number) for number in re.findall(r"\d+\.\d+", capsys.readouterr().out))
    assert 1 <= ratio < 3 and 1 < by_chance < 3 and len(names["objective"].costs_s) == 64
    exec(second, names)
    assert len(names["tuner"].search.trials) == 24


def test_the_leaderboard_of_the_page_on_the_bench_is_that_of_its_file() -> None:
    page, runs = (HOME / "docs/bench.md").read_text(), read_runs(HOME / "docs/results/data/search/bench.csv")
    shown = re.findall(r"^\| `(.*)` \| (.*) \((.*) to (.*)\) \| (.*) \| (.*) \|$", page, re.MULTILINE)
    assert shown
    for each, (optimizer, *ratios, cpu_s) in zip(leaderboard(runs), shown, strict=True):
        assert (optimizer, cpu_s) == (each.optimizer, f"{each.cpu_s:.1f}")
        assert ratios == [f"{value:.2f}" for value in (each.score, each.low, each.high, each.ratio)]
    assert {row["problem"] for row in runs} <= set(names()) and f"has {len(names())} problems" in page


def test_the_example_of_the_page_on_clusters_is_valid(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", (HOME / "docs/cluster.md").read_text(), re.DOTALL)
    (tmp_path / "models.yaml").write_text(example)
    pipeline = Pipeline.load(tmp_path / "models.yaml")
    assert pipeline.undescribed == ["zen5"] and set(pipeline.spec.targets) == {"zen5", "pods", "h200"}
    assert node_resources(pipeline, "pods") == {"node_selector": "cpu=zen5,disk=ssd"}
    assert node_resources(pipeline, "zen5") == {"slurm_partition": "amd", "constraint": "zen5"}


def test_the_models_yaml_of_the_accelerator_is_valid(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", (HOME / "docs/vta/README.md").read_text(), re.DOTALL)
    (tmp_path / "models.yaml").write_text(example)
    pipeline = Pipeline.load(tmp_path / "models.yaml")
    assert list(pipeline.spec.builds) == ["resnet18-vta-dcoc", "resnet18-searched-dcoc"]
    assert pipeline.location("vta") == DeviceLocation.SIMULATOR and pipeline.descriptions["searched"]["area_max"] == 1.5


@pytest.mark.parametrize("page", LINKED, ids=relative)
def test_every_link_has_a_target(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        path, _, heading = link.partition("#")
        if path.startswith("https:"):
            continue
        found = page.parent / path if path else page
        assert found.exists(), link
        assert not heading or heading in headings(found), link


def test_commands_in_the_docs_exist() -> None:
    named = {name for page in LINKED for name in re.findall(r"(?:`|    )anole ([a-z]+)\b", page.read_text())}
    assert named >= {"plan", "doctor", "tune"}
    assert named <= set(main.list_commands(Context(main)))


def test_make_targets_in_the_docs_exist() -> None:
    make_targets = set(re.findall(r"^([a-z-]+):.*## ", (HOME / "Makefile").read_text(), re.MULTILINE))
    shown = {name for page in LINKED for name in re.findall(r"(?:`|    )make ([a-z-]+)", page.read_text())}
    assert shown >= {"demo", "test", "test-all", "lint"}
    assert shown <= make_targets


def test_the_design_page_lists_every_folder_file_and_layer() -> None:
    page = (HOME / "docs/design.md").read_text()
    folders = {folder.parent.name for folder in (HOME / "lib/anole").glob("*/__init__.py")}
    files = {file.name for file in (HOME / "lib/anole").glob("[a-z]*.py")}
    assert {name for name in folders if f"`{name}/`" not in page} == set()
    assert {name for name in files if f"`{name}`" not in page} == set()
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each.get("containers") == ["anole"]]
    assert "".join(f"    {layer}\n" for layer in layers) in page


def test_the_newest_version_in_the_changelog_is_current() -> None:
    newest = re.findall(r"^## (\S+)$", (HOME / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert newest == PYPROJECT["project"]["version"]
