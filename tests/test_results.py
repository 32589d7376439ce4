"""docs/results: figures are those of the files behind them, every file is described, and stale ones are called so."""

from __future__ import annotations

import csv
import re
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
RESULTS = HOME / "docs/results"
DATA = RESULTS / "data"
PAGES = sorted(RESULTS.glob("*.md"))

Row = Mapping[str, str]


def rows(name: str, **wanted: str) -> list[Row]:
    """Returns the lines of a file that have some values."""
    with (DATA / name).open(newline="") as file:
        return [row for row in csv.DictReader(file) if all(row[key] == value for key, value in wanted.items())]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def times(value: float) -> str:
    return f"{value:.2f}x"


def speedups(name: str, rival: str, batch: str = "1") -> list[float]:
    return [float(row["speedup"]) for row in rows(name, engine=rival, batch=batch)]


def mean_and_range(found: list[float]) -> list[str]:
    return [times(statistics.geometric_mean(found)), times(min(found)), times(max(found))]


def of_other_networks() -> list[str]:
    found = [float(row["speedup"]) for row in rows("zoo.csv") if row["speedup"]]
    mean, *ends = mean_and_range(found)
    return [mean, f"{sum(speedup < 1 for speedup in found)} of them are slower", *ends]


def of_onnx_files() -> list[str]:
    found = [float(row["speedup"]) for row in rows("evaluations_onnx_intel.csv") if not row["model"].endswith("_n8")]
    return mean_and_range(found)


def of_default_configs() -> list[str]:
    mean, *ends = mean_and_range(speedups("networks_intel.csv", "untuned"))
    return [mean, times(statistics.geometric_mean(speedups("networks_intel.csv", "untuned", "8"))), *ends]


def of_tuning_time() -> list[str]:
    found = [float(row["tuning_s"]) for row in rows("networks_intel.csv", engine="anole", batch="1")]
    return [f"{value:.0f} s" for value in (statistics.median(found), min(found), max(found))]


def of_the_papers() -> list[str]:
    near = Counter(row["variant"] for row in rows("tuners_replayed.csv") if row["trials_to_98%"])
    runs = Counter(row["variant"] for row in rows("tuners_replayed.csv"))
    papers = [near[preset] for preset in ("autotvm", "release", "chameleon", "adatune")]
    assert near["release"] == min(papers) and near["chameleon"] == max(papers)
    return [
        *(f"**{near['chameleon']}** of {runs['chameleon']} searches of Chameleon", f"AutoTVM's **{near['autotvm']}**"),
        *(f"{min(papers)} (RELEASE) to {max(papers)}", f"random search {near['random']}"),
    ]


def of_the_presets() -> list[str]:
    summary = {row["variant"]: row for row in rows("vta_summary.csv")}
    trials = {variant: row["median_trials_to_1%"] for variant, row in summary.items()}
    seconds = {variant: row["median_s_to_1%"] for variant, row in summary.items()}
    papers = [row for variant, row in summary.items() if variant in ("autotvm", "chameleon", "dcoc")]
    ends = [sorted((row[figure] for row in papers), key=float) for figure in ("median_trials_to_1%", "median_s_to_1%")]
    return [
        f"**{trials['anole']}** trials and {seconds['anole']} s",
        f"{trials['autotvm']} and {seconds['autotvm']} s",
        f"{ends[0][0]} to {ends[0][-1]} trials, {ends[1][0]} s to {ends[1][-1]} s",
    ]


def of_dcoc() -> list[str]:
    (summary,) = rows("vta_summary.csv", variant="dcoc")
    models = {row["model"] for row in rows("vta_models.csv")}
    gaps = [
        statistics.mean(float(row["gap"]) for row in rows("vta_models.csv", model=m, variant="dcoc")) for m in models
    ]
    return [
        times(float(summary["throughput_of_autotvm_at_64"])),
        f"{times(float(summary['throughput_of_autotvm_at_128']))} after 128",
        f"{100 * min(gaps):.0f} % to {100 * max(gaps):.1f} %",
    ]


ANSWERS: tuple[Callable[[], list[str]], ...] = (
    lambda: mean_and_range(speedups("networks.csv", "onnxruntime")),
    lambda: mean_and_range(speedups("networks_intel.csv", "onnxruntime")),
    lambda: mean_and_range(speedups("networks_intel.csv", "onnxruntime", "8")),
    of_onnx_files,
    of_other_networks,
    of_default_configs,
    of_tuning_time,
    of_the_papers,
    of_the_presets,
    of_dcoc,
)
"""What each question's line must say, from the files that it links to."""


def questions() -> list[str]:
    return re.findall(r"^\| \d+ \|.*$", (RESULTS / "README.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("number", range(len(ANSWERS)))
def test_an_answer_is_what_its_file_says(number: int) -> None:
    line = questions()[number]
    answer, spread = cells(line)[2:4]
    said = f"{answer} {spread}"
    for figure in ANSWERS[number]():
        assert figure in said, f"{figure} is not in: {said}"


def test_there_are_ten_questions_with_a_page_and_a_file_each() -> None:
    assert len(questions()) == len(ANSWERS) == 10
    for line in questions():
        page, data = cells(line)[4:]
        assert ".md" in page and "**" in cells(line)[2]
        assert re.search(r"\(data/\w+\.csv\)", data)


@pytest.mark.parametrize(
    "name", ["networks", "networks_intel", "networks_intel_again", "networks_onnx", "networks_others"]
)
def test_tables_of_networks_are_those_of_the_report(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HOME / "benchmarks"))
    from networks_report import networks_of, report

    page = (RESULTS / "networks.md").read_text().splitlines()
    missing = [line for line in report(networks_of(rows(f"{name}.csv"))) if line.startswith("|") and line not in page]
    assert not missing


def test_the_page_of_the_zoo_is_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HOME / "benchmarks"))
    from zoo_report import by_group, not_done, seconds, slowest

    page = (RESULTS / "zoo.md").read_text().splitlines()
    assert not [
        line for table in (by_group, slowest, not_done, seconds) for line in table(rows("zoo.csv")) if line not in page
    ]


def test_the_page_of_shared_machines_is_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HOME / "benchmarks"))
    from shared_report import TABLES

    page = (RESULTS / "shared.md").read_text().splitlines()
    assert not [line for table, name in TABLES for line in table(rows(name)) if line not in page]


@pytest.mark.parametrize(
    "page", [HOME / "README.md", RESULTS / "README.md", RESULTS / "shared.md"], ids=lambda page: page.parent.name
)
def test_means_beside_neighbours_are_those_of_their_file(page: Path) -> None:
    one, two, four = (
        times(
            statistics.geometric_mean(
                float(row["p50_speedup"]) for row in rows("load_latency.csv", engine="onnxruntime", neighbours=count)
            )
        )
        for count in "124"
    )
    assert f"{one}, {two} and {four}" in " ".join(page.read_text().split())


def lines_of(page: str) -> list[list[str]]:
    """Returns the cells of every line of a page's tables."""
    return [cells(line) for line in (RESULTS / page).read_text().splitlines() if line.startswith("|")]


def test_the_table_of_replayed_searches_is_that_of_its_file() -> None:
    found = rows("tuners_replayed.csv")
    for variant in {row["variant"] for row in found}:
        own, line = [row for row in found if row["variant"] == variant], [variant]
        for table in ("L8", "resnet18_2", "squeezenet_expand"):
            gaps = [float(row["gap_at_128"]) for row in own if row["table"] == table]
            line.append(f"{statistics.mean(gaps):.3f} ± {statistics.stdev(gaps) / len(gaps) ** 0.5:.3f}")
        assert [*line, str(sum(bool(row["trials_to_98%"]) for row in own))] in lines_of("search.md")


def agrees(said: str, value: str) -> bool:
    """Whether a cell is a figure of a file, rounded to as many digits as the cell has, or both are empty."""
    if not said or not value:
        return said == value
    return abs(float(said) - float(value)) <= 0.5001 * 10 ** -len(said.partition(".")[2])


def test_the_table_of_searches_on_whole_spaces_is_that_of_its_file() -> None:
    figures = {(row["variant"], row["figure"]): row for row in rows("tuners_variants.csv")}
    lines = {line[0]: line[1:] for line in lines_of("search.md") if len(line) == 8}
    for variant in {variant for variant, _ in figures} - {"PPO+AS", "RFEI+CSA+CV"}:
        near, nearer = figures[variant, "trials_to_95%"], figures[variant, "trials_to_98%"]
        medians = [figures[variant, figure]["median"] for figure in ("quality_at_64", "quality_at_192", "elapsed_s")]
        found = (near["runs"], near["reached"], nearer["reached"], near["median"], *medians)
        assert all(map(agrees, lines[variant], found)) and len(lines[variant]) == len(found), variant


def test_the_table_of_the_accelerators_layers_is_that_of_its_file() -> None:
    lines = {line[0]: line[1:] for line in lines_of("vta.md")}
    named = (
        "within_5%",
        "within_1%",
        "median_trials_to_5%",
        "median_trials_to_1%",
        "mean_gap_at_64",
        "mean_gap_at_128",
    )
    beside = tuple(f"throughput_of_autotvm_at_{trials}" for trials in (32, 64, 128))
    for row in rows("vta_summary.csv"):
        for said, figure in zip(lines[row["variant"]], (*named, *beside, "median_s_to_1%"), strict=True):
            assert agrees(said, row[figure]), (row["variant"], figure)


def test_the_table_of_the_accelerators_networks_is_that_of_its_file() -> None:
    for model, title in (
        ("alexnet", "AlexNet"),
        ("vgg16", "VGG-16"),
        ("resnet18", "ResNet-18"),
        ("resnet34", "ResNet-34"),
    ):
        (line,) = [line for line in lines_of("vta.md") if line[0] == title]
        assert line[1] == f"{float(rows('vta_models.csv', model=model)[0]['optimum_s']):.4f}"
        for place, variant in enumerate(("random", "autotvm", "chameleon", "dcoc", "anole"), 2):
            found = [float(row["latency_s"]) for row in rows("vta_models.csv", model=model, variant=variant)]
            assert line[place] == f"{statistics.median(found):.4f}"


def test_the_table_of_tuning_times_is_that_of_its_files() -> None:
    tables = [rows(name, engine="anole", batch="1") for name in ("networks_intel.csv", "networks.csv")]
    xeon, epyc = ({row["network"]: row for row in table} for table in tables)
    expected = {
        (f"{int(row['trials_measured']):,}", *(f"{float(each[name]['tuning_s']):.0f} s" for each in (xeon, epyc)))
        for name, row in xeon.items()
    }
    assert {tuple(line[2:]) for line in lines_of("tuning-time.md") if len(line) == 5 and line[1].isdigit()} == expected


def described() -> dict[str, str]:
    """Returns what the table of files says of each, by name."""
    lines = re.findall(r"^\| \[([^]]+)\]\(([^)]+)\) (\|.*)$", (DATA / "README.md").read_text(), re.MULTILINE)
    assert all(name == link for name, link, _ in lines)
    assert len({name for name, _, _ in lines}) == len(lines)
    return {name: rest for name, _, rest in lines}


def test_every_file_is_described_once() -> None:
    files = (path for path in DATA.rglob("*") if path.is_file() and path.suffix != ".md")
    assert set(described()) == {str(path.relative_to(DATA)) for path in files}


def test_a_description_has_command_machine_commit_and_state() -> None:
    for name, rest in described().items():
        command, machine, when, shows, state = cells(rest)
        assert command and shows, name
        assert machine in ("EPYC", "Zen 4", "Xeon"), name
        assert re.search(r"November, [0-9a-f]{7}", when) or when == "as its CSV", name
        assert state == "current" or re.match(r"stale: .{10}", state), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_stale_is_called_so_where_it_is_quoted(page: Path) -> None:
    stale = {name for name, rest in described().items() if cells(rest)[-1].startswith("stale")}
    for passage in re.split(r"\n\n|\n(?=\||- )", page.read_text()):
        quoted = {name for name in re.findall(r"\(data/([^)]+)\)", passage) if name in stale}
        if quoted and not passage.startswith("!["):
            assert "stale" in passage.lower(), f"{page.name} quotes {quoted} in: {passage}"


def test_pages_quote_every_file() -> None:
    quoted = {name for page in PAGES for name in re.findall(r"\(data/([^)]+)\)", page.read_text())}
    assert quoted - {"README.md"} == set(described())
