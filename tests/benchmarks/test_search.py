"""The experiments on search methods: their jobs, their rows, and the page of claims."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anole.store.shard import Shard, read_shard, shard_paths
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.task import Dense, Task
from benchmarks.search import calibration, convergence, exact, layers, networks
from benchmarks.search.claims import CLAIMS, page, read_data
from benchmarks.search.exact import CHECKPOINTS
from benchmarks.search.picture import points
from benchmarks.search.report import sections
from benchmarks.search.run import EXPERIMENTS, FOLDER
from benchmarks.search.variants import TABLE_VARIANTS, sized_as

from .. import record_project
from ..tiny_builds import HOME

LAYER = "64-128_k1x1_s2_56x56"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_job_occurs_once_and_has_all_keys(name):
    jobs = list(EXPERIMENTS[name].jobs())
    assert len(set(jobs)) == len(jobs)
    assert all(len(job) == len(EXPERIMENTS[name].keys) and all(isinstance(each, str) for each in job) for job in jobs)


@pytest.mark.parametrize("experiment", [exact.TABLES, layers.LIVE])
def test_the_first_jobs_compare_all_variants_with_one_seed(experiment):
    jobs = [dict(zip(experiment.keys, job, strict=True)) for job in experiment.jobs()]
    firsts = [job for job in jobs if job["seed"] == "0"]
    assert jobs[: len(firsts)] == firsts
    assert len({job["variant"] for job in firsts}) == len({job["variant"] for job in jobs})


def test_versions_differ_between_tuners_layers_and_spaces():
    for experiment in (exact.TABLES, layers.LIVE, networks.TUNING):
        seen = {}
        for job in experiment.jobs():
            *names, _, version = job
            assert seen.setdefault(version, names) == names or experiment is networks.TUNING


def test_explorers_search_one_surrogate_to_a_common_score():
    for seed in "01":
        (walk,), (episodes,) = (convergence.run((LAYER, name, seed, "any")) for name in convergence.EXPLORERS)
        assert set(walk) == set(episodes) == set(convergence.CONVERGED.columns)
        assert walk["reached"] and 0 <= walk["steps"] < 500
        assert 0 < episodes["steps"] <= 500 and (episodes["steps"] == 500 or episodes["reached"])


@pytest.mark.parametrize("variant", ["random", "SA+AS"])
def test_a_run_on_a_table_reports_its_columns(variant, monkeypatch):
    monkeypatch.setattr(exact, "TRIALS", 48)
    (row,) = exact.run((LAYER, "open", variant, "0", "any"))
    assert set(row) <= set(exact.TABLES.columns) and {"gap_at_16", "gap_at_end", "queries", "drawn_between"} <= set(row)
    assert int(row["trials"]) == 48 == sum(map(int, row["batches"].split()))
    assert 0 < int(row["failed"]) < 48
    assert float(row["gap_at_16"]) >= float(row["gap_at_end"]) >= 0


def test_a_warm_start_ranks_a_layer_by_what_others_agree_on(tmp_path):
    target = get_target(describe_cpu(threads=1))
    for features in (256, 512, 768):
        task = Task(Dense(1, features, features), target.description, 1)
        space, run = target.space(task.workload), record_project.run_of(task, "random")
        vectors = space.sample(40, np.random.default_rng(0))
        # Artificial: for all layers, a higher merit is slower.
        latencies_s = 1e-6 * (10 + np.argsort(np.argsort(space.merit(space.columns(vectors)))))
        with Shard.open(tmp_path, run, task) as shard:
            for number, (vector, latency_s) in enumerate(zip(vectors, latencies_s.tolist(), strict=True)):
                gflops = task.workload.flop / latency_s / 1e9
                shard.append_trial(
                    replace(record_project.trial_of(number, latency_s), config=space.config(vector), gflops=gflops)
                )
    rows = [row for path in shard_paths(tmp_path) for row in calibration.rows_of(read_shard(path), tmp_path)]
    assert [set(row) for row in rows] == [set(calibration.COLUMNS)] * 3
    for row in rows:
        ratios = {name: float(row[name]) for name in calibration.COLUMNS[2:]}
        assert 1 <= ratios["warm_4"] <= ratios["warm_1"] < ratios["random"] < ratios["merit_4"] < ratios["merit_1"]


def test_a_run_ends_at_the_optimum_which_counts_at_later_checkpoints():
    (row,) = exact.run((LAYER, "constrained", "by merit", "0", "any"))
    assert int(row["trials"]) < 256 and float(row["gap_at_end"]) == 0
    assert {float(row[f"gap_at_{n}"]) for n in CHECKPOINTS if n >= int(row["trials"])} == {0.0}


@pytest.mark.parametrize("variant", ["dcoc batch 16", "descent", "tpe"])
def test_searches_run_on_measured_spaces(variant, monkeypatch):
    if variant == "tpe":
        pytest.importorskip("optuna", reason="Optuna is installed for `make bench-search` alone")
    monkeypatch.setattr(exact, "TRIALS", 48)
    (row,) = exact.run(("convolution_rtx_2080_ti", "measured", variant, "0", "any"))
    assert float(row["gap_at_end"]) <= float(row["gap_at_16"])
    assert int(row["trials"]) == 48 or float(row["gap_at_end"]) == 0


def test_a_control_has_the_batch_sizes_of_its_run(monkeypatch):
    monkeypatch.setattr(exact, "TRIALS", 80)
    control = "SA+greedy sizes of AS"
    (own,), (other,) = (
        exact.run((LAYER, "constrained", each, "1", "any")) for each in (control, sized_as(control, TABLE_VARIANTS))
    )
    assert own["batches"] == other["batches"]


def test_autotvms_spaces_have_as_many_configs_as_its_own_template_had():
    published = {"L1": 252, "L2": 1440, "L3": 308, "L6": 1024, "L7": 972, "L8": 720}
    assert {layer: layers.space_of("cpu", layer, "AutoTVM's").size for layer in published} == published


@pytest.mark.slow
@pytest.mark.parametrize("space", layers.Live().spaces)
def test_a_live_run_reports_its_columns(space):
    live = layers.Live(trials=32)
    (row,) = live.run(("L8", space, "SA+greedy batch 16", "0", "any"))
    assert set(row) == set(live.experiment.columns)
    assert row["trials"] == 32 and float(row["ratio_at_end"]) > 0


def run_of(variant, layer, seed, gap):
    """Return a row of the experiment on tables: a run of 48 trials in batches of 16."""
    found = {"variant": variant, "layer": layer, "seed": str(seed), "trials": "48", "gap_at_256": str(gap)}
    return dict.fromkeys(exact.TABLES.columns, "") | found | {"batches": "16 16 16"}


def cells_of(text, words):
    """Return the cells of the only row of a table that contains a text."""
    (row,) = [line for line in text.splitlines() if line.startswith("|") and words in line]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_the_page_of_claims_lists_measured_and_missing_claims():
    assert "Of 0 measured claims" in page({}) and all(claim.claim in page({}) for claim in CLAIMS)
    rng = np.random.default_rng(0)
    lines = [
        run_of(variant, layer, seed, gap + rng.uniform(0, 0.1))
        for layer in "abcdef"
        for seed in range(2)
        for variant, gap in (("SA+greedy", 0), ("PPO+greedy", 0), ("autotvm", 1), ("SA+AS", 0), ("chameleon", 0))
    ]
    few = [
        {"variant": variant, "layer": layer, "seed": "0", "steps": steps}
        for layer in "ab"
        for variant, steps in (("SA+greedy", "40"), ("PPO+greedy", "10"))
    ]
    text = page({"tables/constrained": lines, "convergence": few})
    assert "2 are about the gain of a method" in text and "\n| 1 | 0 | 0, 0 of them saturated | 1 |\n" in text
    *_, here, setting, p, verdict = cells_of(text, "faster code than AutoTVM's diversity, with annealing")
    assert "12/6)" in here and setting.endswith("256 trials") and float(p.split(",")[0].strip("< ")) < 0.05
    assert verdict == "holds"
    assert cells_of(text, "in 16 iterations, with annealing")[-2:] == ["", CLAIMS[3].flaw]
    *_, here, _, _, verdict = cells_of(text, "PPO converges in fewer steps")
    assert (here, verdict) == ("3.73x (2/2)", "undecided")


def test_more_claims_need_more_evidence():
    rng = np.random.default_rng(3)
    names = ("SA+AS", "autotvm", "chameleon", "PPO+diverse", "dcoc", "MAPPO+greedy")
    lines = [
        run_of(name, layer, 0, rng.uniform(0, 0.1) + 0.06 * (name == "autotvm")) for layer in "abcdef" for name in names
    ]
    claim = "faster code than AutoTVM's diversity, with annealing"
    alone, among = (
        cells_of(page({"tables/constrained": [line for line in lines if line["variant"] in names[:n]]}), claim)
        for n in (2, len(names))
    )
    assert alone[3] == among[3] and float(alone[-2].split(",")[0].strip("< ")) < float(among[-2].split(",")[0])


def test_the_page_of_claims_is_made_from_the_files():
    found = (HOME / "docs/results/claims.md").read_text(encoding="utf-8")
    assert found == page(read_data(HOME / FOLDER))


def table_run(variant, layer, seed, *, gap, trials_to_1="", search_s="2.0"):
    """Return a row of the experiment on tables."""
    plain = {f"gap_at_{n}": str(gap) for n in (*CHECKPOINTS, "end")}
    reached = {"trials": "200", "trials_to_1%": trials_to_1, "search_s_to_1%": "1.0" if trials_to_1 else ""}
    named = {"variant": variant, "layer": layer, "seed": str(seed)}
    return dict.fromkeys(exact.TABLES.columns, "") | plain | reached | named | {"search_s": search_s}


def test_without_rows_there_is_no_section():
    assert sections({}) == []


def test_variants_are_compared_only_where_all_have_runs():
    lines = [table_run("dcoc", layer, seed, gap=0.5) for layer in "ab" for seed in range(3)]
    lines += [table_run("random", "a", seed, gap=1.0) for seed in range(3)]
    (section,) = sections({"tables/constrained": lines})
    assert "over the optimum's in 3 runs;" in " ".join(section.split())
    assert cells_of(section, "| random |")[2].startswith("2.000")


def test_a_search_without_a_success_counts_and_has_no_median():
    (section,) = sections({"tables/open": [table_run("random", "a", 0, gap="inf")]})
    assert cells_of(section, "| random |")[2].startswith("100.000")
    assert cells_of(section, "| random |")[4:6] == ["0%", ""]


def test_tuners_in_several_kinds_of_spaces_are_compared_with_anole_after_64_trials():
    rng = np.random.default_rng(0)
    gaps = {"anole cold": 0.0, "descent": 0.001, "dcoc": 0.5, "random": 1.0}
    lines = [
        table_run(variant, layer, seed, gap=gap + rng.uniform(0, 0.002))
        for variant, gap in gaps.items()
        for layer in "abcdef"
        for seed in range(2)
    ]
    measured = [each for each in lines if each["variant"] != "dcoc"]
    found = sections({"tables/constrained": lines, "tables/measured": measured})
    section, _ = [each for each in found if "Compared with `anole`" in each]
    assert "corrected for all 4 comparisons" in " ".join(section.split()) and "dcoc" not in section
    for variant, begin, verdict in (("random", "2.00 (", ") behind"), ("descent", "1.00 (", ") equivalent")):
        own, nothing, same = cells_of(section, f"| {variant} |")[1:]
        assert own == same and own.startswith(begin) and own.endswith(verdict) and nothing == ""


def test_the_price_of_a_trial_decides_between_few_trials_and_a_fast_search():
    layers = ("a", "b", "c")
    few = [
        table_run("dcoc", layer, seed, gap=0.0, trials_to_1="10") | {"search_s_to_1%": str(45 + 5 * place)}
        for place, layer in enumerate(layers)
        for seed in range(3)
    ]
    fast = [
        table_run("SA+greedy batch 16", layer, seed, gap=0.0, trials_to_1="40") for layer in layers for seed in range(3)
    ]
    section = sections({"tables/constrained": few + fast})[-1]
    ratios = [float(cell.split()[0]) for cell in cells_of(section, "| dcoc |")[1:]]
    assert ratios == sorted(ratios, reverse=True) and ratios[0] > 10 and ratios[-1] < 0.4


def test_networks_are_listed_with_engines_that_were_only_timed():
    tuned = [{"network": "x", "tuner": "anole", "seconds": "90.2", "trials": "500"}]
    timed = [
        {"network": "x", "engine": name, "latency_ms": ms, "ratio": ratio}
        for name, ms, ratio in (("anole", "9.4", "1.0"), ("onnxruntime", "17.6", "1.87"))
    ]
    (section,) = sections({"networks_tuned": tuned, "networks_timed": timed})
    assert "| x | anole | 90 | 500 | 9.40 | 1.00 |" in section
    assert "| x | onnxruntime |  |  | 17.60 | 1.87 |" in section


def test_live_layers_are_listed_by_space_with_their_failures():
    plain = {
        "variant": "adatune",
        "layer": "L8",
        "space": "open",
        "ratio_at_end": "1.5",
        "seconds": "60",
        "trials": "256",
    }
    lines = [plain | {"seed": str(seed), "failed": str(64 * seed)} for seed in range(3)]
    (section,) = sections({"layers": [*lines, lines[0] | {"space": "constrained", "ratio_at_end": ""}]})
    assert "| open | adatune | L8 | 3 | 256 | 1.500 (1.500-1.500) | 60 | 25% |" in section
    assert "| constrained | adatune | L8 | 1 | 256 |  | 60 | 0% |" in section


def test_every_point_of_a_curve_is_a_mean_over_all_runs():
    gaps = [{16: "3", 64: "1", "end": "0"}, {16: "1", "end": "0"}]
    plain = dict.fromkeys((f"gap_at_{n}" for n in CHECKPOINTS), "") | {"space": "open", "variant": "dcoc"}
    found = points([plain | {f"gap_at_{n}": gap for n, gap in row.items()} for row in gaps])
    assert {(point["panel"], point["title"]) for point in found} == {("open", "DCOC")}
    ratios = {point["trials"]: point["ratio"] for point in found}
    assert [ratios[n] for n in (16, 64, 128)] == pytest.approx([8**0.5, 2**0.5, 1])
