"""Pages in docs/results: figures match their data files, every file is described, and stale ones are marked."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice, takewhile
from pathlib import Path

import numpy as np
import pytest

from anole_vta.accelerator.energy import sram
from anole_vta.accelerator.pareto import front_mask
from anole_vta.area import area_gates
from anole_vta.geometry import DEFAULT, Geometry, Memory
from benchmarks.common.rows import read_rows, times

HOME = Path(__file__).parents[2]
RESULTS = HOME / "docs/results"
DATA = RESULTS / "data"
PAGES = sorted(RESULTS.glob("*.md"))
SEARCH = " ".join((RESULTS / "search.md").read_text().split())
"""The text of search.md without line breaks."""

Row = Mapping[str, str]


def rows(name: str, **wanted: str) -> list[Row]:
    """Return the rows of a file with given values."""
    return [row for row in read_rows(DATA / name) if wanted.items() <= row.items()]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def speedups(name: str, rival: str, batch: str = "1") -> list[float]:
    return [float(row["speedup"]) for row in rows(name, engine=rival, batch=batch)]


def mean_and_range(found: list[float]) -> list[str]:
    return [times(statistics.geometric_mean(found)), times(min(found)), times(max(found))]


def figures_of_other_networks() -> list[str]:
    found = [float(row["speedup"]) for row in rows("zoo.csv") if row["speedup"]]
    mean, *ends = mean_and_range(found)
    return [mean, f"{sum(speedup < 1 for speedup in found)} of them are slower", *ends]


def figures_of_onnx_files() -> list[str]:
    found = [float(row["speedup"]) for row in rows("evaluations_onnx_intel.csv") if not row["model"].endswith("_n8")]
    return mean_and_range(found)


def figures_of_default_configs() -> list[str]:
    others = [statistics.geometric_mean(speedups("networks_intel.csv", "untuned", batch)) for batch in "18"]
    return [*mean_and_range(speedups("networks.csv", "untuned")), *map(times, others)]


def figures_of_tuning_time() -> list[str]:
    found = [float(row["tuning_s"]) for row in rows("networks_intel.csv", engine="anole", batch="1")]
    return [f"{value:.0f} s" for value in (statistics.median(found), min(found), max(found))]


def counts_of_claims() -> list[int]:
    """Return the sums of the first table of claims.md: tests that hold, fail, are equal, saturated, and undecided."""
    table = (RESULTS / "claims.md").read_text().partition("|---|")[2].partition("\n\n")[0]
    return [sum(map(int, column)) for column in list(zip(*map(cells, table.splitlines()[1:]), strict=True))[1:]]


def figures_of_the_papers() -> list[str]:
    holds, fails, equal, saturated, undecided = counts_of_claims()
    return [
        f"**{holds}** of {holds + fails + equal + saturated + undecided} tests of claims about gains hold, {fails} "
        f"exclude a gain, {equal} show no difference, {saturated} are saturated, {undecided} are undecided"
    ]


def figures_of_the_presets() -> list[str]:
    found = rows("search/tables.csv.xz", space="constrained")
    presets = ("autotvm", "chameleon", "adatune", "dcoc")
    runs = {each: {(row["layer"], row["seed"]): row for row in found if row["variant"] == each} for each in presets}
    common = set.intersection(*map(set, runs.values()))
    trials = [
        statistics.median_high([float(own[place]["trials_to_1%"] or "inf") for place in common])
        for own in runs.values()
    ]
    own = rows("search/tables.csv.xz", space="constrained", variant="anole cold")
    near = [f"{100 * statistics.mean(float(row['trials_to_1%'] or 'inf') <= n for row in own):.0f} %" for n in (1, 16)]
    return [f"**{near[0]}** of {len(own)} runs", f"batch of 16 in {near[1]}", f"{min(trials):.0f} trials and more"]


def figures_of_time_to_a_network() -> list[str]:
    found = rows("search/networks_tuned.csv", network="resnet18")
    timed = {row["engine"]: row for row in rows("search/networks_timed.csv", network="resnet18")}
    own = next(float(row["seconds"]) for row in found if row["tuner"] == "anole")
    others = [row for row in found if not row["tuner"].startswith("anole")]
    near = [float(row["seconds"]) for row in others if float(timed[row["tuner"]]["ratio"]) <= 1.05]
    ends = [f"{pick(float(row['seconds']) for row in others):.0f} s" for pick in (min, max)]
    return [f"**{own:.0f} s**", *ends, *([f"{min(near) / own:.1f}x"] if near else [])]


def figures_of_quantized_files() -> list[str]:
    found = rows("precision.csv", precision="int8")
    speedups = {
        rival: [float(row["speedup"]) for row in found if row["engine"] == rival]
        for rival in ("onnxruntime", "openvino.default")
    }
    mean, *_ = mean_and_range(speedups["openvino.default"])
    return [*mean_and_range(speedups["onnxruntime"]), mean]


ANSWERS: tuple[Callable[[], list[str]], ...] = (
    lambda: mean_and_range(speedups("networks.csv", "onnxruntime")),
    lambda: mean_and_range(speedups("networks_intel.csv", "onnxruntime")),
    lambda: mean_and_range(speedups("networks_intel.csv", "onnxruntime", "8")),
    figures_of_onnx_files,
    figures_of_other_networks,
    figures_of_default_configs,
    figures_of_tuning_time,
    figures_of_the_papers,
    figures_of_the_presets,
    figures_of_time_to_a_network,
    figures_of_quantized_files,
)
"""Functions that return the figures in each question's answer, from the files that it links to."""


def questions() -> list[str]:
    return re.findall(r"^\| \d+ \|.*$", (RESULTS / "README.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("number", range(len(ANSWERS)))
def test_answers_match_their_files(number: int) -> None:
    line = questions()[number]
    answer, spread = cells(line)[2:4]
    said = f"{answer} {spread}"
    for figure in ANSWERS[number]():
        assert figure in said, f"{figure} is not in: {said}"


def test_there_are_eleven_questions_with_a_page_and_a_file_each() -> None:
    assert len(questions()) == len(ANSWERS) == 11
    for line in questions():
        page, data = cells(line)[4:]
        assert ".md" in page and "**" in cells(line)[2]
        assert re.search(r"\(data/[\w/]+\.csv(\.xz)?\)", data)


@pytest.mark.parametrize("name", ["networks", "networks_intel"])
def test_tables_of_networks_match_the_report(name: str) -> None:
    from benchmarks.networks.report import networks_of, report

    page = (RESULTS / "networks.md").read_text().splitlines()
    table = list(takewhile(bool, report(networks_of(rows(f"{name}.csv")))))
    assert len(table) > 10 and not [line for line in table if line not in page]


def test_means_of_machines_match_their_files() -> None:
    for machine, name, batches in (("Zen 3", "networks", "1"), ("Xeon", "networks_intel", "18")):
        for batch in batches:
            rivals = ("onnxruntime", "openvino", "torch", "torch.compile", "untuned")
            means = [mean_and_range(speedups(f"{name}.csv", rival, batch))[0] for rival in rivals]
            assert [machine, batch, *means] in lines_of("networks.md")


def test_the_table_of_the_readme_matches_its_file() -> None:
    from benchmarks.networks.report import networks_of

    found = [cells(line) for line in (HOME / "README.md").read_text().splitlines() if line.startswith("|")]
    rivals = ("onnxruntime", "openvino", "torch.compile")
    for network in networks_of(rows("networks.csv", batch="1")):
        (line,) = (line for line in found if line[0].split(",")[0] == network.title)
        figures = [f"{network.speedup(rival):.2f}x" for rival in rivals]
        assert line[1:] == [network.latency("anole"), network.latency("onnxruntime"), *figures]
    means = [mean_and_range(speedups("networks.csv", rival))[0] for rival in rivals]
    assert ["geometric mean", "", "", *means] in found


def test_the_page_of_the_zoo_matches_its_report() -> None:
    from benchmarks.zoo.report import by_group, not_done, seconds, slowest

    page = (RESULTS / "zoo.md").read_text().splitlines()
    assert not [
        line for table in (by_group, slowest, not_done, seconds) for line in table(rows("zoo.csv")) if line not in page
    ]
    assert any(line.startswith(f"{sum(bool(row['far']) for row in rows('zoo.csv'))} networks have") for line in page)


def test_the_page_of_precisions_matches_its_report() -> None:
    from benchmarks.networks.precision import table

    page = (RESULTS / "precision.md").read_text().splitlines()
    assert not [line for line in table(rows("precision.csv")) if line not in page]


def test_figures_without_avx512_match_their_files() -> None:
    precision, zoo, networks = (
        " ".join((RESULTS / f"{name}.md").read_text().split()) for name in ("precision", "zoo", "networks")
    )
    of = {
        engine: [float(row["speedup"]) for row in rows("precision_avx2.csv", precision="int8", engine=engine)]
        for engine in ("onnxruntime", "openvino.default")
    }
    assert "{} as fast as ONNX Runtime ({} to {})".format(*mean_and_range(of["onnxruntime"])) in precision
    inverse = mean_and_range([1 / speedup for speedup in of["openvino.default"]])
    assert "OpenVINO is {} as fast as Anole ({} to {})".format(*inverse) in precision
    single = rows("precision_avx2.csv", precision="float32", engine="onnxruntime", batch="1")
    ratios = {row["network"]: times(float(row["speedup"])) for row in single}
    for title, network in (("ResNet-18", "resnet18"), ("ResNet-50", "resnet50"), ("MobileNet v2", "mobilenet_v2")):
        assert f"{title} {ratios[network]} " in networks
    found = {row["network"].removeprefix("timm_"): float(row["speedup"]) for row in rows("zoo_avx2.csv")}
    assert "{} as fast as ONNX Runtime on average ({} to {}".format(*mean_and_range(list(found.values()))) in zoo
    assert all(f"{name} ({times(value)})" in zoo for name, value in found.items() if value < 1)


def test_the_page_of_precisions_has_the_table_of_answers() -> None:
    from benchmarks.networks.accuracy import table

    text = (RESULTS / "precision.md").read_text()
    page = text.splitlines()
    assert len(rows("accuracy.csv")) > 2 and not [line for line in table(rows("accuracy.csv")) if line not in page]
    exact = rows("accuracy.csv", precision="float32")
    assert {float(row["agreement"]) for row in exact} == {1.0}
    least_db = min(float(row["sqnr_db"]) for row in exact)
    assert f"In float32 all answers are the same, at {least_db:.0f} dB and more." in " ".join(text.split())


def test_the_page_of_shared_machines_matches_its_report() -> None:
    from benchmarks.shared.report import TABLES

    page = (RESULTS / "shared.md").read_text().splitlines()
    assert not [line for table, name in TABLES for line in table(rows(name)) if line not in page]


def test_the_page_of_records_matches_its_report() -> None:
    from benchmarks.store.report import merges, pages, views

    page = (RESULTS / "records.md").read_text().splitlines()
    tables = [list(table(rows("store_scale.csv"))) for table in (merges, views, pages)]
    assert [len(table) for table in tables] == [5, 11, 8]
    assert not [line for table in tables for line in table if line not in page]


@pytest.mark.parametrize("page", [RESULTS / "README.md", RESULTS / "shared.md"], ids=lambda page: page.stem)
def test_means_under_background_load_match_their_file(page: Path) -> None:
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
    """Return the cells of every row in the tables of a page."""
    return [cells(line) for line in (RESULTS / page).read_text().splitlines() if line.startswith("|")]


def test_the_table_of_tuners_matches_its_files() -> None:
    tuned = {row["tuner"]: row for row in rows("search/networks_tuned.csv", network="resnet18")}
    for row in rows("search/networks_timed.csv", network="resnet18"):
        own = tuned.get(row["engine"])
        effort = (f"{float(own['seconds']):.0f}", own["trials"]) if own else ("", "")
        figures = (f"{float(row['latency_ms']):.2f}", f"{float(row['ratio']):.2f}")
        assert ["resnet18", row["engine"], *effort, *figures] in lines_of("claims.md")


def test_costs_for_users_match_their_files() -> None:
    tuned = {row["tuner"]: float(row["seconds"]) for row in rows("search/networks_tuned.csv", network="resnet18")}
    timed = {row["engine"]: row for row in rows("search/networks_timed.csv", network="resnet18")}
    titles = {"anole, no trials": "`anole`, no trials", "metaschedule 64": "MetaSchedule, 64 trials a task"}
    for tuner, seconds in tuned.items():
        ratio = float(timed[tuner]["ratio"])
        line = [titles.get(tuner, f"`{tuner}`"), f"{seconds:,.0f}", f"{ratio:.2f}"]
        assert line in lines_of("search.md"), tuner
        if not tuner.startswith("anole"):
            assert float(timed[tuner]["latency_ms"]) > 1.05 * float(timed["anole, no trials"]["latency_ms"])
    ratio = float(timed["onnxruntime"]["ratio"])
    assert f"ONNX Runtime is at {ratio:.2f} (" in " ".join((RESULTS / "search.md").read_text().split())


def test_gains_of_templates_and_of_search_match_their_file() -> None:
    said = (RESULTS / "search.md").read_text().partition("## Templates and search")[2].partition("## ")[0]
    found = {row["engine"]: float(row["latency_ms"]) for row in rows("search/factorial.csv", network="resnet18")}
    with_winograd = ["constrained, with Winograd's method", "anole, no trials", "", "anole"]
    direct = ["constrained, direct", "anole, direct, no trials", "random, direct", "anole, direct"]
    for name, *engines in (with_winograd, direct, ["open, direct", "", "random, open", "anole, open"]):
        line = " | ".join([name, *(f"{found[engine]:.1f}" if engine else "" for engine in engines)])
        assert f"| {line} |".replace("|  |", "| |") in said
    assert all(f"{found[engine]:.1f}" in said for engine in ("onnxruntime", "openvino", "torch.compile"))
    for over, under in (
        *(("anole, direct", "anole"), ("anole, no trials", "anole"), ("anole, direct, no trials", "anole, direct")),
        *(("random, open", "random, direct"), ("anole, open", "anole, direct")),
    ):
        assert f"{found[over] / found[under]:.2f}x" in said
    assert min(found["onnxruntime"], found["openvino"]) < 1.05 * found["anole, direct"]


def test_results_of_a_minute_match_their_file() -> None:
    said = (RESULTS / "search.md").read_text().partition("**A budget of a minute.**")[2].partition("\n\n")[0]
    found = {row["engine"]: row for row in rows("search/factorial.csv", network="resnet18")}
    minute, whole, none = (found[name] for name in ("anole, 60 s", "anole", "anole, no trials"))
    for row in (minute, whole):
        assert f"{row['trials']} trials)" in said and f"{float(row['latency_ms']):.1f} ms" in said
    for row in (minute, whole, none):
        assert re.search(rf"\b{float(row['seconds']):.0f} s\b", said), row


def test_gains_of_a_calibration_match_their_files() -> None:
    said = (RESULTS / "search.md").read_text().partition("## Calibration")[2].partition("## ")[0]
    kinds: dict[str, list[dict[str, str]]] = {}
    for row in rows("search/calibration.csv"):
        is_grouped, is_square = " g" in row["layer"], "k3x3 s1" in row["layer"]
        for name in ("depthwise" if is_grouped else "3x3" if is_square else row["layer"].split()[0], "all"):
            kinds.setdefault(name, []).append(row)
    for found in kinds.values():
        columns = ("random", "merit_1", "warm_1", "merit_4", "warm_4")
        means = [f"{statistics.geometric_mean(float(row[column]) for row in found):.2f}" for column in columns]
        assert f"| {' | '.join(means)} |" in said and re.search(rf"\b{len(found)}\b", said)
    for network in ("resnet18", "squeezenet1_1"):
        timed = {row["engine"]: float(row["latency_ms"]) for row in rows("search/factorial.csv", network=network)}
        after, without, none = (timed[f"anole, {name}"] for name in ("4 trials, calibrated", "4 trials", "no trials"))
        assert f"{after:.3g} ms instead of {without:.3g}; untuned {none:.3g}" in said


def test_quoted_comparisons_match_their_file() -> None:
    from benchmarks.search.evidence import effect, log_ratios
    from benchmarks.search.report import cost_at

    found = rows("search/tables.csv.xz", space="constrained")

    def said(over: str, under: str, column: str, form: str) -> str:
        own = effect(log_ratios(found, over, under, cost_at(column) if column.startswith("gap") else column))
        return form.format(own.value, own.low, own.high)

    search, of_vta, readme, dcoc = (
        " ".join(path.read_text().split())
        for path in (*(RESULTS / f"{name}.md" for name in ("search", "vta", "README")), HOME / "docs/methods/dcoc.md")
    )
    fast = "{:.2f}x as fast ({:.2f}x to {:.2f}x)"
    assert said("SA+greedy", "PPO+greedy", "steps", "{:.1f}x fewer steps ({:.1f}x to {:.1f}x)") in search
    assert said("SA+greedy", "PPO+greedy", "queries", "{:.0f}x fewer queries ({:.0f}x to {:.0f}x)") in search
    assert said("SA+greedy", "PPO+greedy", "gap_at_256", "({:.2f}x after 256 trials, {:.2f}x to {:.2f}x)") in readme
    own = said("dcoc", "SA+diverse batch 16", "gap_at_256", f"with batches of 16 is {fast}")
    assert own in of_vta
    own = said("SA+diverse batch 16", "dcoc", "gap_at_256", "{:.2f} ({:.2f} to {:.2f})")
    assert own in dcoc
    greedy = "{:.2f} ({:.2f} to {:.2f}) of the speed with greedy"
    assert said("MAPPO+greedy", "dcoc", "gap_at_256", greedy) in dcoc


def test_figures_of_anole_and_of_failures_on_tables_match_their_file() -> None:

    def runs(space: str, variant: str) -> list[Row]:
        return rows("search/tables.csv.xz", space=space, variant=variant)

    def means(found: list[Row], *columns: str) -> Iterator[str]:
        return (f"{statistics.mean(int(row[column]) for row in found):.0f}" for column in columns)

    near = [float(row["trials_to_1%"] or "inf") for row in runs("constrained", "anole cold")]
    one, batch = (f"{100 * statistics.mean(each <= n for each in near):.0f} %" for n in (1, 16))
    assert (
        f"after one trial in {one} of {len(near)} runs, and after the first batch, before learning, in {batch}"
        in SEARCH
    )
    ships = runs("constrained", "anole cold, ends early")
    assert f"after {next(means(runs('open', 'anole cold, ends early'), 'trials'))} on average (chosen" in SEARCH
    share = f"{100 * statistics.mean(float(row['gap_at_end']) <= 0.01 for row in ships):.0f} %"
    assert f"it ends after {next(means(ships, 'trials'))} trials on average, within 1 % in {share}" in SEARCH


def test_small_batches_lead_early_and_are_no_more_than_level_later() -> None:
    """A cell of the table has a ratio and its interval."""
    table = (RESULTS / "claims.md").read_text().partition("## By the number of trials")[2].partition("\n## ")[0]
    found = {line[0]: line[1:] for line in map(cells, table.splitlines()) if line[1:2] == ["constrained"]}

    def interval(cell: str) -> tuple[float, float]:
        low, high = re.findall(r"\((.*)-(.*)\)", cell)[0]
        return float(low), float(high)

    small = found["AutoTVM in batches of 16 over batches of 64"]
    assert interval(small[1])[0] > 1 and interval(small[3])[0] <= 1
    learning = found["`chameleon` over `chameleon` that does not learn"]
    assert interval(learning[1])[0] > 1 and 1 <= float(learning[3].split()[0]) < 1.1


def test_figures_of_a_description_match_their_file() -> None:
    from benchmarks.search.evidence import effect, log_ratios
    from benchmarks.search.figures import cost_at

    found = rows("search/features.csv", space="constrained")
    gap = effect(log_ratios(found, "autotvm, knobs alone", "autotvm", cost_at("gap_at_128")))
    assert gap is not None and f"{gap.value:.2f}x as slow ({gap.low:.2f}x to {gap.high:.2f}x)" in SEARCH
    alone, described = (
        statistics.mean(int(row["trials_to_1%"] or row["trials"]) for row in found if row["variant"] == variant)
        for variant in ("autotvm, knobs alone", "autotvm")
    )
    assert f"takes {alone:.0f} instead of {described:.0f} trials on average" in SEARCH


def test_figures_of_evaluators_on_recorded_times_match_their_file() -> None:
    found = rows("search/recorded.csv", evaluator="AdaTune, CV < 0.1")
    saved, timed = (sum(float(row[name]) for row in found) for name in ("saved_s", "timed_s"))
    within = [100 * float(row["within_5%"]) for row in found]
    assert len(found) == 12 and f"saves {100 * saved / timed:.0f} % of the recorded run times" in SEARCH
    assert (
        f"for {statistics.mean(within):.0f} % of the configs, and for {min(within):.0f} % in the worst space" in SEARCH
    )
    assert f"up to {100 * max(float(row['slower']) for row in found):.1f} % slower than the fastest" in SEARCH


def test_speedups_of_default_configs_match_their_file() -> None:
    found = rows("defaults_avx2.csv")
    for kind in {row["kind"] for row in found}:
        of_kind = [[float(row["ratio"]) for row in found if (row["kind"], row["threads"]) == (kind, n)] for n in "12"]
        shown = [f"{statistics.geometric_mean(ratios):.2f} ({min(ratios):.2f})" for ratios in of_kind]
        assert [kind, str(len(of_kind[0])), *shown] in lines_of("kernels.md")


def test_prices_of_adatune_match_the_page_of_claims() -> None:
    *_, own = (line[1:] for line in lines_of("claims.md") if line[0] == "adatune" and len(line) == 5)
    for cell, form in ((own[0], "takes {}x as long ({}x to {}x) at 0.01 s"), (own[2], "{}x ({}x to {}x) at 1 s")):
        assert form.format(*(f"{float(each):.1f}" for each in re.findall(r"[\d.]+", cell))) in SEARCH


def test_figures_of_open_spaces_and_networks_match_the_page_of_claims() -> None:
    table = (RESULTS / "claims.md").read_text().partition("with `anole` after 256 trials")[2].partition("\n## ")[0]
    found = {line[0]: line[2:4] for line in map(cells, table.splitlines()) if len(line) == 4}
    others = {
        tuner: each
        for tuner, each in found.items()
        if "anole" not in tuner and all(cell[:1].isdigit() for cell in each)
    }
    behind = ", ".join(f"`{tuner}`" for tuner, (in_open, _) in sorted(others.items()) if "behind" in in_open)
    slower = sorted(float(in_open.split()[0]) for in_open, _ in others.values())
    assert f"{slower[0]:.1f}x to {slower[-1]:.1f}x as slow as `anole`" in SEARCH and f"is ahead of {behind}" in SEARCH
    assert not any("behind" in on_gpus for _, on_gpus in others.values())
    ahead = 1 - min(float(on_gpus.split()[0]) for _, on_gpus in others.values())
    assert f"none is ahead by more than {100 * ahead:.0f} % on average" in SEARCH
    two = "{}x and {}x".format(*(others[name][0].split()[0] for name in ("adatune", "chameleon as published")))
    assert f"`adatune` or Chameleon as published ({two})" in (RESULTS / "README.md").read_text()
    early = re.match(r"1\.(\d\d) \(1\.(\d\d)-1\.(\d\d)\)", found["anole cold, ends early"][0])
    assert early and "early end costs {} % ({} to {}) vs. 256".format(*map(int, early.groups())) in SEARCH
    (mobile,) = [line for line in lines_of("claims.md") if line[0] == "mobilenet_v2"]
    own, other = (round(float(mobile[at])) for at in (3, 4))
    assert f"`anole` is {own} % from the optimum on MobileNet v2, and `autotvm` {other} %" in SEARCH
    named = ("autotvm", "chameleon", "dcoc")
    three = [row for row in rows("search/accelerator.csv") if row["variant"] in named]
    found, layers = (sum(int(row[column]) for row in three) for column in ("optimal_layers", "layers"))
    assert f"tuners find the optimum of {100 * found / layers:.0f} % of a network's layers" in SEARCH


def test_pages_agree_on_the_counts_of_claims() -> None:
    from benchmarks.search.claims import Verdict, read_data, verdicts_of

    holds, fails, *_ = counts = counts_of_claims()
    readme = (HOME / "README.md").read_text(encoding="utf-8")
    assert f"The papers' claims about gains hold in {holds} of {sum(counts)} tests" in " ".join(readme.split())
    assert f"Of the {sum(counts)} tests of the papers' claims about gains, {holds} hold and {fails} exclude" in SEARCH
    found = verdicts_of(read_data(DATA / "search"))
    held = {each.claim.where for each, (verdict, _) in found.items() if verdict is Verdict.HOLDS and each.claim.under}
    passage = SEARCH.partition("**What holds.**")[2].partition("- **")[0]
    assert set(re.findall(r"\((Fig\. [\w, ]+|Table \d|abstract|sections [\d, ]+)\)", passage)) == held


def test_figures_of_convergence_match_their_file() -> None:
    from benchmarks.search.evidence import effect

    steps = {(row["variant"], row["layer"], row["seed"]): float(row["steps"]) for row in rows("search/convergence.csv")}
    near = {
        name: {at[1:] for at, n in steps.items() if at[0] == name and n < 500} for name in ("SA+greedy", "PPO+greedy")
    }
    pairs = {at[1:]: np.log1p(steps["PPO+greedy", *at[1:]]) - np.log1p(steps["SA+greedy", *at[1:]]) for at in steps}
    shares = (f"{100 * len(near[name]) / len(pairs):.0f} %" for name in ("PPO+greedy", "SA+greedy"))
    assert f"in {next(shares)} of {len(pairs)} searches, and annealing in {next(shares)} " in SEARCH
    more = effect(pairs)
    assert f"{more.value:.1f}x the steps of annealing ({more.low:.1f}x to {more.high:.1f}x)" in SEARCH
    both = [pairs[at] for at in near["SA+greedy"] & near["PPO+greedy"]]
    assert f"In the {len(both)} pairs where both succeed, PPO takes {np.exp(np.mean(both)):.1f}x as many" in SEARCH


def test_a_calibration_makes_a_tuned_network_in_a_minute() -> None:
    (row,) = rows("search/factorial_zen4.csv", network="resnet18", engine="anole, 4 trials, calibrated")
    assert float(row["ratio"]) < 1.02 and f"four trials a task take {float(row['seconds']):.0f} s" in SEARCH


def test_results_after_equal_seconds_match_their_file() -> None:
    found = {(row["network"], row["engine"]): row for row in rows("search/minute_zen4.csv")}

    def ratios(network: str, *engines: str) -> Iterator[str]:
        return (f"{float(found[network, engine]['ratio']):.2f}" for engine in engines)

    rivals = [f"{tuner}, 60 s" for tuner in ("chameleon", "autotvm", "adatune")]
    of_resnet = ratios("resnet18", *rivals, "anole, no trials", "openvino", "onnxruntime", "random", "anole")
    assert (
        "ResNet-18 by `chameleon` takes {}x as long as by `anole`, by `autotvm` {}x and by `adatune` {}x;"
        " untuned {}x, OpenVINO {}x, ONNX Runtime {}x.".format(*islice(of_resnet, 6))
    ) in SEARCH
    assert (
        "`random` with 128 trials a task comes to {}x, `anole` with up to 128 to {}x.".format(*of_resnet)
        + " `anole` takes {} s and `random` {} s".format(
            *(f"{float(found['resnet18', tuner]['seconds']):.0f}" for tuner in ("anole", "random"))
        )
    ) in SEARCH
    both = (*ratios("squeezenet1_1", *rivals[:2]), *ratios("squeezenet1_1", "anole, no trials"))
    assert both[0] == both[1]
    assert f"SqueezeNet takes {both[0]}x as long by `autotvm` and by `chameleon`, and untuned {both[2]}x" in SEARCH
    short = found["resnet18", "anole, 20 s"]
    assert (
        f"complete after {float(short['seconds']):.0f} s. It takes {float(short['ratio']):.2f}x and, timed again,"
        f" {float(short['ratio_again']):.2f}x as long"
    ) in SEARCH
    again = [float(row["ratio_again"]) / float(row["ratio"]) for row in found.values() if row["ratio_again"]]
    assert f"differed by up to {100 * max(max(each, 1 / each) - 1 for each in again):.0f} %" in SEARCH


def test_results_of_small_spaces_match_their_file() -> None:
    from benchmarks.search.layers import LIVE, space_of

    figures = []
    for space, variant in (("AutoTVM's", "SA+greedy"), ("open", "AutoTVM, 16 iterations")):
        own = rows("search/layers.csv", space=space, variant=variant, seed="0")
        assert len(own) == 6
        mean = statistics.geometric_mean(float(row["ratio_at_end"]) for row in own)
        figures += [f"{1 / mean:.2f}x", f"{statistics.median_high(float(row['seconds']) for row in own):.0f}"]
    small, small_s, large, large_s = figures
    assert f"make the code {small} as fast as untuned in {small_s} s a layer (256 trials)" in SEARCH
    assert f"In open spaces they reach {large} in {large_s} s (1,024 trials)" in SEARCH
    layers = sorted({job[0] for job in LIVE.jobs()})
    sizes = [space_of("cpu", layer, "AutoTVM's").size for layer in layers]
    assert f"{min(sizes):,} to {max(sizes):,} configs for six layers" in SEARCH and len(layers) == 6


def test_the_tables_of_ranges_match_their_file() -> None:
    found, engines = rows("sizes.csv"), ("fixed", "onnxruntime", "openvino")
    ratios = {(row["network"], row["size"], row["engine"]): float(row["ratio"]) for row in found}
    for network in {row["network"] for row in found}:
        shown = next(line for line in lines_of("sizes.md") if line[0] == network and len(line) == 8)
        for engine, cell in zip(engines, shown[1:], strict=False):
            mean, low, high = mean_and_range([value for at, value in ratios.items() if at[::2] == (network, engine)])
            assert cell == f"{mean} ({low} to {high})"
    lead = " ".join((RESULTS / "sizes.md").read_text().partition("\n|")[0].split())
    of = {engine: [value for at, value in ratios.items() if at[2] == engine] for engine in engines}
    mean, low, high = mean_and_range([1 / value for value in of["fixed"]])
    close = sum(1 / 1.05 <= value <= 1.05 for value in of["fixed"])
    assert f"takes {mean} as long as builds of fixed sizes" in lead
    assert f"(geometric mean of {len(of['fixed'])} sizes; {low} to {high}), {close} of them" in lead
    for name, engine in (("ONNX Runtime", "onnxruntime"), ("OpenVINO", "openvino")):
        mean, low, high = mean_and_range(of[engine])
        below = sum(value < 1 for value in of[engine])
        assert f"{mean} as fast as {name} ({low} to {high}, {below} " in lead


def test_the_table_of_tuning_times_matches_its_files() -> None:
    tables = [rows(name, engine="anole", batch="1") for name in ("networks_intel.csv", "networks.csv")]
    xeon, zen = ({row["network"]: row for row in table} for table in tables)

    def effort(row: Row) -> tuple[str, str]:
        return f"{int(row['trials_measured']):,}", f"{float(row['tuning_s']):.0f}"

    expected = {(*effort(row), *effort(zen[name])) for name, row in xeon.items()}
    found = [line[1:] for line in lines_of("tuning-time.md") if len(line) == 5]
    assert {tuple(line) for line in found if all(re.fullmatch(r"[\d,]+", cell) for cell in line)} == expected


def test_the_table_of_executed_cuda_kernels_matches_its_file() -> None:
    found = {(row["template"], row["engine"]): row for row in rows("gpu_engines.csv")}
    totals = Counter[int]()
    for kind in {kind for kind, _ in found}:
        own = [found[kind, engine] for engine in ("emulated", "pocl", "oclgrind")]
        faulty = [sum(int(row[outcome]) for outcome in ("failed", "racy", "invalid", "wrong")) for row in own]
        right = [int(row["right"]) for row in own]
        numbers = [int(own[0]["configs"]), *chain(*zip(right, faulty, strict=True)), int(own[2]["not covered"])]
        assert [kind, *map(str, numbers)] in lines_of("gpu-execution.md"), kind
        totals.update(dict(enumerate(numbers)))
    assert ["all", *(str(totals[at]) for at in range(8))] in lines_of("gpu-execution.md")
    assert totals[0] > 300 and totals[2] == totals[4] == totals[6] == 0


def test_the_table_of_servers_matches_its_file() -> None:
    found = rows("servers.csv")
    for device in {row["device"] for row in found}:
        rates = {(row["servers"], row["pair"]): float(row["trials_per_s"]) for row in found if row["device"] == device}
        pairs = {pair for _, pair in rates}
        ratios = [rates["2", pair] / rates["1", pair] for pair in pairs]
        medians = [f"{statistics.median(rates[n, pair] for pair in pairs):.2f}" for n in "12"]
        line = [device, *medians, times(statistics.median(ratios)), f"{times(min(ratios))} to {times(max(ratios))}"]
        assert len(pairs) >= 5 and line in lines_of("tuning-time.md"), line


def test_the_table_of_the_report_matches_its_file() -> None:
    found = rows("report_scale.csv")
    for row in found:
        seconds = [f"{float(row[name]):.1f} s" for name in ("make_s", "make_cpu_s", "open_s")]
        assert [f"{int(row['trials']):,}", *seconds, f"{int(row['page_bytes']) / 1e6:.2f} MB"] in lines_of(
            "tuning-time.md"
        )
    (opened,) = (float(row["open_s"]) for row in found if row["trials"] == "100000")
    assert f"**{opened:.1f} s**" in (RESULTS / "tuning-time.md").read_text() and opened < 2


def test_the_table_of_planning_matches_its_file() -> None:
    found = {(row["models"], row["command"]): row for row in rows("planning.csv")}
    for models in {models for models, _ in found}:
        both = [found[models, command] for command in ("snakemake -n", "anole plan")]
        line = [models, both[0]["tasks"], *(f"{float(row['processor_s']):.2f} s" for row in both)]
        assert line in lines_of("tuning-time.md"), line


def read_provenance() -> dict[str, Row]:
    """Return the row of provenance.csv for each file, by name."""
    found = rows("provenance.csv")
    assert len({row["file"] for row in found}) == len(found)
    return {row["file"]: row for row in found}


def test_every_file_is_described_once() -> None:
    files = {str(path.relative_to(DATA)) for path in DATA.rglob("*") if path.is_file() and path.suffix != ".md"}
    assert set(read_provenance()) == files - {"provenance.csv"}


def test_a_description_has_command_machine_commit_and_state() -> None:
    for name, row in read_provenance().items():
        assert row["command"] and row["shows"], name
        assert row["machine"] in ("EPYC", "Zen 4", "Zen 3", "Xeon"), name
        assert re.fullmatch(r"2026-11-\d\d(/2026-11-\d\d)?", row["date"]), name
        assert re.fullmatch(r"[0-9a-f]{7}((, [0-9a-f]{7})* and [0-9a-f]{7})?", row["commit"]), name
        assert row["state"] == "current" or re.match(r"stale: .{10}", row["state"]), name
        assert set(row) == {"file", "shows", "command", "machine", "date", "commit", "state"}, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_stale_files_are_marked_where_quoted(page: Path) -> None:
    stale = {name for name, row in read_provenance().items() if row["state"].startswith("stale")}
    for passage in re.split(r"\n\n|\n(?=\||- )", page.read_text()):
        quoted = {name for name in re.findall(r"\(data/([^)]+)\)", passage) if name in stale}
        if quoted and not passage.startswith("!["):
            assert "stale" in passage.lower(), f"{page.name} quotes {quoted} in: {passage}"


def test_pages_quote_every_file() -> None:
    quoted = {name for page in PAGES for name in re.findall(r"\(data/([^)]+)\)", page.read_text())}
    assert quoted - {"README.md", "provenance.csv"} == set(read_provenance())


def test_the_tables_of_the_gpu_model_match_their_files() -> None:
    lines = lines_of("gpu-model.md")
    for row in rows("gpu_model_logs.csv"):
        figures = [row[f"{name}_spearman"] for name in ("model", "rules")]
        figures += [row[f"{name}_best_of_5"] for name in ("model", "rules", "random")]
        layer = f"{row['log']}, {row['layer'].removeprefix('conv2d ')}"
        assert [layer, row["which"], row["configs"], *figures] in lines
    kernels = rows("gpu_resources.csv")
    for template in {row["template"] for row in kernels}:
        own = [row for row in kernels if row["template"] == template]
        ratios = [int(row["model_registers"]) / int(row["registers"]) for row in own]
        (line,) = (line for line in lines if line[0] == template)
        assert line[1] == str(len(own)) and line[2].startswith(f"{statistics.median(ratios):.2f} (")
        assert line[-2:] == [
            str(sum(row["local_bytes"] != "0" for row in own)),
            str(max(int(row["local_bytes"]) for row in own)),
        ]


def test_figures_of_the_best_known_gpu_kernels_match_their_file() -> None:
    page = " ".join((RESULTS / "gpu-model.md").read_text().split())
    found = rows("gpu_model_tophub.csv")
    shares = [100 * statistics.median(float(row[f"better_by_{name}"]) for row in found) for name in ("model", "rules")]
    assert f"{len(found)} layers" in page and f"| {shares[0]:.1f} % | {shares[1]:.1f} % |" in page
    slow = [float(row["model_us"]) / float(row["measured_us"]) for row in found]
    assert f"median (quartiles) | {statistics.median(slow):.2f} (" in page
    both = [
        tuple(float(row[name]) for name in ("direct_over_winograd", "model_direct_over_winograd"))
        for row in found
        if row["winograd_us"]
    ]
    agreeing = sum((measured > 1) == (modeled > 1) for measured, modeled in both)
    assert f"| {agreeing} of {len(both)} |" in page
    gains = [measured for measured, modeled in both if modeled >= 1.5]
    assert f"({len(gains)} layers), minimum and median | {min(gains):.2f}x, {statistics.median(gains):.2f}x |" in page


def test_accelerators_within_an_area_match_the_front() -> None:
    front = rows("accelerator_front.csv")

    def fastest(network: str, area: str) -> Row:
        within = [row for row in front if row["network"] == network and float(row["area"]) <= float(area)]
        return min(within, key=lambda row: float(row["latency_ms"]))

    table = [line for line in lines_of("vta.md") if len(line) == 6 and "_i8w8a32_" in line[1]]
    for area, *shown in table:
        own, common = fastest("resnet18", area), fastest("all networks", area)
        assert shown[:3] == [
            own["accelerator"],
            f"{float(own['latency_ms']):.1f} ms",
            f"{float(own['relative_energy']):.2f}x",
        ]
        assert shown[3:] == [common["accelerator"], f"{float(common['latency_ms']) / 1e3:.2f} s"]
    assert len(table) == 5


def test_the_cycles_of_knees_are_sums_of_layers() -> None:
    found = rows("accelerator_rtl.csv")
    for accelerator in {row["accelerator"] for row in found}:
        own = [row for row in found if row["accelerator"] == accelerator]
        rtl, simulated = (
            sum(int(row["count"]) * int(row[f"{which}_cycles"]) for row in own) for which in ("rtl", "simulated")
        )
        (line,) = (line for line in lines_of("vta.md") if line[0].startswith(accelerator) and len(line) == 4)
        assert line[1:] == [f"{rtl:,}", f"{simulated:,}", f"{100 * (simulated / rtl - 1):.3f} %"]
        assert abs(simulated / rtl - 1) < 1e-3


def test_cactis_memories_make_accelerators_larger_and_leave_most_on_the_front() -> None:
    def area(g: Geometry) -> float:
        um2 = sum(sram(8 * g.element_bytes(memory), g.depth(memory)).area_um2 for memory in Memory)
        bits = sum(8 * g.element_bytes(memory) * g.depth(memory) for memory in Memory)
        return area_gates(g) - 0.5 * bits + um2 / 0.798

    own = rows("accelerator_front.csv", network="resnet18")
    areas = [area(Geometry.from_name(row["accelerator"])) / area(DEFAULT) for row in own]
    ratios = [found / float(row["area"]) for found, row in zip(areas, own, strict=True)]
    points = [
        (float(row["latency_ms"]), found, float(row["relative_energy"])) for found, row in zip(areas, own, strict=True)
    ]
    n_left = front_mask(np.array(points)).sum()
    said = f"{min(ratios):.2f} to {max(ratios):.2f} times as large, and {n_left} of its {len(own)} points"
    assert said in " ".join((HOME / "docs/vta/accelerators.md").read_text().split())


def test_the_table_of_searches_for_a_front_matches_its_file() -> None:
    found = rows("accelerator_search.csv")
    shares = ("101", "201", "401", "1002", "2003")
    for method in {row["method"] for row in found}:
        (line,) = (line for line in lines_of("vta.md") if line[0] == method and len(line) == 6)
        for share, shown in zip(shares, line[1:], strict=True):
            own = [float(row["hypervolume"]) for row in found if (row["method"], row["programs"]) == (method, share)]
            spread = f" ({min(own):.2f}-{max(own):.2f})" if len(own) > 1 else ""
            assert shown == (f"{statistics.median(own):.2f}{spread}" if own else "")
            assert len(own) in ((0, 1, 10) if method in ("estimated front", "anole, layer by layer") else (10,))
