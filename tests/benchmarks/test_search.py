"""The experiments on search methods: their jobs, their rows, and the page of claims."""

import json
from collections import Counter

import numpy as np
import pytest

from anole.bench import tables
from anole.keys import canonical_json
from anole_vta.templates import design
from benchmarks.search import convergence, exact, figures, layers, networks, recorded
from benchmarks.search.claims import CLAIMS, page, read_data, verdicts_of
from benchmarks.search.exact import CHECKPOINTS
from benchmarks.search.experiment import FOLDER
from benchmarks.search.picture import points
from benchmarks.search.report import sections
from benchmarks.search.run import EXPERIMENTS
from benchmarks.search.variants import TABLE_VARIANTS, sized_as

from ..tiny_builds import HOME

LAYER = "64-128_k1x1_s2_56x56"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_job_occurs_once_and_has_all_keys(name):
    jobs = list(EXPERIMENTS[name].jobs())
    assert len(set(jobs)) == len(jobs)
    assert all(len(job) == len(EXPERIMENTS[name].keys) and all(isinstance(each, str) for each in job) for job in jobs)


def jobs_of(experiment):
    return [dict(zip(experiment.keys, job, strict=True)) for job in experiment.jobs()]


def test_the_first_live_jobs_compare_all_variants_with_one_seed():
    jobs = jobs_of(layers.LIVE)
    firsts = [job for job in jobs if job["seed"] == "0"]
    assert jobs[: len(firsts)] == firsts
    assert len({job["variant"] for job in firsts}) == len({job["variant"] for job in jobs})


def test_the_runs_that_claims_need_are_first():
    jobs = [(job["space"], job["variant"]) for job in jobs_of(exact.TABLES)]
    needed = {
        (space, variant)
        for claim in CLAIMS
        for space in claim.spaces.split()
        for variant in {claim.over, claim.under} - {""}
        if space != "gpu"
    }
    others = min(at for at, job in enumerate(jobs) if job[1] in ("descent", "dcoc batch 16"))
    assert needed <= set(jobs[:others]) and ("open", "descent") in jobs
    counts = Counter(jobs[:others])
    assert {counts[each] for each in needed} == {10 * 35}, "ten seeds of 35 layers"


def test_comparisons_with_anole_are_on_other_layers_than_its_development():
    rows = [{"layer": layer} for layer in (LAYER, "96-24_k1x1_s1_56x56", "convolution_milo-A100")]
    assert exact.held_out(rows) == rows[1:]
    developed = [table_run(variant, LAYER, seed, gap=0.5) for variant in ("anole cold", "random") for seed in range(6)]
    found = sections({"tables/constrained": developed, "tables/open": developed})
    assert not any("Compared with `anole`" in section for section in found)


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
        for row in (walk, episodes):
            for which in ("steps", "new_steps"):
                steps = np.array(row[f"{which}_by_iteration"].split(), dtype=int)
                assert len(steps) == 4 and ((steps >= 0) & (steps <= 500)).all()
                assert float(row[which]) == pytest.approx(np.exp(np.log(steps + 1).mean()) - 1, abs=0.01)
        assert float(walk["steps"]) < 500


@pytest.mark.parametrize("variant", ["random", "SA+AS"])
def test_a_run_on_a_table_reports_its_columns(variant, monkeypatch):
    monkeypatch.setattr(exact, "TRIALS", 48)
    (row,) = exact.run((LAYER, "open", variant, "0", "any"))
    assert set(row) <= set(exact.TABLES.columns) and {"gap_at_16", "gap_at_end", "queries", "drawn_between"} <= set(row)
    assert int(row["trials"]) == 48 == sum(map(int, row["batches"].split()))
    assert 0 < int(row["failed"]) < 48
    assert float(row["gap_at_16"]) >= float(row["gap_at_end"]) >= 0


def test_rows_do_not_depend_on_the_order_of_jobs(monkeypatch):
    """The first run in a process must not change what the second one samples, which the cached table shares."""
    monkeypatch.setattr(exact, "TRIALS", 80)
    jobs = [(LAYER, "open", variant, "0", "any") for variant in ("SA+greedy", "random")]

    def rows_in(order):
        for cached in (exact._table, tables._load, design.conv2d_space):
            cached.cache_clear()
        found = {job: exact.run(job)[0] for job in order}
        return [{name: figure for name, figure in found[job].items() if "_s" not in name} for job in jobs]

    assert rows_in(jobs) == rows_in(jobs[::-1])
    assert exact._table(LAYER, "open").space.size > 2**20, "a space that searches do not enumerate"


def test_a_run_ends_at_the_optimum_which_counts_at_later_checkpoints():
    (row,) = exact.run((LAYER, "constrained", "by merit", "0", "any"))
    assert int(row["trials"]) < 256 and float(row["gap_at_end"]) == 0
    assert {float(row[f"gap_at_{n}"]) for n in CHECKPOINTS if n >= int(row["trials"])} == {0.0}


def test_spaces_of_others_are_read_from_a_folder(tmp_path, monkeypatch):
    """The cost is 1 + |a - b|, and a config with a = 0 fails."""
    monkeypatch.setattr(exact, "TRIALS", 40)
    monkeypatch.setenv("HUB", str(tmp_path))
    parameters = [{"Name": name, "Values": str(list(range(12)))} for name in "ab"]
    (tmp_path / "toy-T1.json").write_text(json.dumps({"ConfigurationSpace": {"TuningParameters": parameters}}))
    results = [
        {
            **{"configuration": {"a": a, "b": b}, "invalidity": "correct" if a else "runtime", "objectives": ["time"]},
            **{"times": {"runtimes": [1.0]}, "measurements": [{"name": "time", "value": 1 + abs(a - b)}]},
        }
        for a in range(12)
        for b in range(12)
    ]
    (tmp_path / "toy-any_T4.json").write_text(json.dumps({"metadata": {}, "results": results}))
    jobs = [job for job in exact.jobs() if job[1] == "gpu"]
    assert {job[0] for job in jobs} == {"toy-any"} and {job[2] for job in jobs} >= {"dcoc", "chameleon as published"}
    (row,) = exact.run(("toy-any", "gpu", "descent", "0", "any"))
    assert float(row["gap_at_end"]) == 0 and int(row["failed"]) < int(row["trials"]) <= 40
    (row,) = exact.run(("toy-any", "gpu", "dcoc batch 16", "0", "any"))
    end = float(row["gap_at_end"])
    assert end <= float(row["gap_at_16"]) and (end == 0 or int(row["trials"]) == 40)


def test_evaluators_see_recorded_runs_one_by_one():
    """The first run is not timed. The second config slows down after three runs, which AdaTune does not see."""
    steady, slowing = [9.0] + 31 * [1.0], [9.0] + 3 * [2.0] + 28 * [4.0]
    rows = {row["evaluator"]: row for row in recorded.replay("toy", [steady, slowing, [1.0]])}
    ours = rows["AdaTune, CV < 0.1"]
    assert (ours["configs"], float(ours["runs"]), float(ours["timed_s"]), float(ours["saved_s"])) == (2, 3, 149, 140)
    assert [float(ours[f"within_{n}%"]) for n in (1, 5)] == [0.5, 0.5] and float(ours["slower"]) == 0
    assert float(rows["one run"]["saved_s"]) == 146 and float(rows["AutoTVM (4 x 3)"]["runs"]) == 12


def test_a_control_has_the_batch_sizes_of_its_run(monkeypatch):
    monkeypatch.setattr(exact, "TRIALS", 80)
    control = "SA+greedy sizes of AS"
    (own,), (other,) = (
        exact.run((LAYER, "open", each, "1", "any")) for each in (control, sized_as(control, TABLE_VARIANTS))
    )
    assert own["batches"] == other["batches"]


def test_autotvms_spaces_have_as_many_configs_as_its_own_template_had():
    published = {"L1": 252, "L2": 1440, "L3": 308, "L6": 1024, "L7": 972, "L8": 720}
    assert {layer: layers.space_of("cpu", layer, "AutoTVM's").size for layer in published} == published


@pytest.mark.slow
@pytest.mark.parametrize("space", layers.Live().spaces)
def test_a_live_run_reports_its_columns(space):
    live = layers.Live(trials=32)
    (row,) = live.run(("L8", space, "SA+diverse batch 16", "0", "any"))
    assert set(row) == set(live.experiment.columns)
    assert row["trials"] == 32 and float(row["ratio_at_end"]) > 0


def test_final_configs_of_a_layer_and_seed_are_measured_together(tmp_path):
    space = layers.space_of("cpu", "small", "open")
    finals = [canonical_json(space.config(vector)) for vector in space.sample(2, np.random.default_rng(0))]
    lines = ["layer,space,variant,seed,version,final"]
    for seed, variants in (("0", layers.FULL), ("1", layers.FULL[:1])):
        quoted = [final.replace('"', '""') for final in finals]
        lines += [f'small,open,"{each}",{seed},v,"{final}"' for each, final in zip(variants, quoted, strict=False)]
    (tmp_path / "layers.csv").write_text("\n".join(lines))
    experiment = layers.Confirmations(tmp_path / "layers.csv", seconds=0.01).experiment
    (job,) = experiment.jobs()
    rows = experiment.run(job)
    assert job[:2] == ("small", "0") and [row["variant"] for row in rows] == list(layers.FULL)
    assert all(set(row) == set(experiment.columns) and 0 < float(row["latency_ms"]) < 1000 for row in rows)


def run_of(variant, layer, seed, gap):
    """Return a row of the experiment on tables: a run of 48 trials in batches of 16."""
    found = {"variant": variant, "layer": layer, "seed": str(seed), "trials": "48"}
    found |= {f"gap_at_{n}": str(gap) for n in (256, "end")}
    return dict.fromkeys(exact.TABLES.columns, "") | found | {"batches": "16 16 16", "search_s": "0"}


def cells_of(text, words):
    """Return the cells of the only row of a table that contains a text."""
    (row,) = [line for line in text.splitlines() if line.startswith("|") and words in line]
    return [cell.strip() for cell in row.strip("|").split("|")]


def lines_of(gaps, seed=1, noise=0.01):
    """Return rows of two seeds on six layers, for variants with given extra costs."""
    rng = np.random.default_rng(seed)
    noises = rng.normal(0, noise, size=(2, 6, len(gaps)))
    return [
        run_of(variant, layer, seed, max(0.0, (1 + gap) * np.exp(noise) - 1) if gap else 0.0)
        for seed, by_layer in enumerate(noises)
        for layer, by_variant in zip("abcdef", by_layer, strict=True)
        for (variant, gap), noise in zip(gaps.items(), by_variant, strict=True)
    ]


def test_the_page_of_claims_lists_measured_and_missing_claims():
    assert "| open spaces | 0 | 0 | 0 | 0 | 0 |" in page({}) and all(claim.claim in page({}) for claim in CLAIMS)
    lines = lines_of({"SA+greedy": 0.5, "autotvm": 1, "SA+AS to 256": 0.2, "SA+AS": 0.2})
    few = [
        {"variant": variant, "layer": layer, "seed": "0", "steps": steps, "new_steps": steps}
        for layer in "ab"
        for variant, steps in (("SA+greedy", "40"), ("PPO+greedy", "10"))
    ]
    text = page({"tables/open": lines, "convergence": few})
    assert "| open spaces | 1 | 0 | 1 | 0 | 0 |" in text and "| elsewhere | 0 | 0 | 0 | 0 | 2 |" in text
    claim = "finds faster code than AutoTVM's diversity, with annealing"
    *_, theirs, constrained, opened, gpu, excluded = cells_of(text, claim)
    assert (theirs, constrained, gpu, excluded) == ("1.135x", "", "", "no")
    assert opened.startswith("**holds**: 1.66x as fast (1.6") and opened.endswith("12/6; p<0.001)")
    assert cells_of(text, "fewer configs than annealing alone")[5].endswith("(12/6), by its settings")
    *_, here, excluded = cells_of(text, "PPO converges in fewer steps")
    assert (here, excluded) == ("**undecided**: 3.73x fewer steps (2/2)", "no")


@pytest.mark.parametrize(
    ("over", "under", "noise", "verdict"),
    [
        (1.0, 0.5, 0.01, "holds"),
        (0.5, 1.0, 0.01, "does not hold"),
        (0.50, 0.53, 0.02, "does not hold"),  # 2 % slower: a gain of 2 % is excluded, and equality is not shown
        (0.5, 0.5, 0.002, "equivalent"),
        (0.54, 0.5, 0.1, "undecided"),
        (0.0, 0.0, 0.01, "saturated"),
        (0.0, 0.01, 0.001, "saturated"),
        (0.0, 0.5, 0.01, "does not hold"),  # a loss can show where the other method is at the optimum
    ],
)
def test_verdicts_are_one_sided_and_know_ceilings(over, under, noise, verdict):
    verdicts = verdicts_of({"tables/gpu": lines_of({"autotvm": over, "SA+AS to 256": under}, noise=noise)})
    assert [each.value for each, _ in verdicts.values()] == [verdict]


def test_a_papers_number_is_excluded_by_a_smaller_gain():
    (finding,) = verdicts_of({"tables/gpu": lines_of({"autotvm": 1.05, "SA+AS to 256": 1.0})})
    assert finding.claim.size == 1.135 and finding.is_excluded
    (finding,) = verdicts_of({"tables/gpu": lines_of({"autotvm": 1.30, "SA+AS to 256": 1.0})})
    assert not finding.is_excluded


def test_more_claims_in_the_same_spaces_need_more_evidence():
    gaps = {"autotvm": 0.56, "SA+AS to 256": 0.5, "PPO+diverse": 0.5, "chameleon to 256": 0.5, "dcoc": 0.5}
    lines = lines_of(gaps, noise=0.04)
    two = [line for line in lines if line["variant"] in ("autotvm", "SA+AS to 256")]
    p_alone, p_among, p_elsewhere = (
        next(p for each, (_, p) in verdicts_of(data).items() if each.claim.under == "SA+AS to 256")
        for data in (
            {"tables/open": two},
            {"tables/open": lines},
            {"tables/open": two, "tables/gpu": [line for line in lines if line not in two]},
        )
    )
    assert p_alone < p_among and p_elsewhere == p_alone


def curve_of(trials, gaps, search_s=0.0):
    """Return a row whose costs fall at checkpoints; 0.1 s a trial is PRICE_S."""
    found = {f"gap_at_{n}": str(gap) for n, gap in gaps.items()}
    return run_of("any", "a", 0, "") | {"trials": str(trials), "search_s": str(search_s)} | found


def test_runs_are_compared_at_a_common_cost_and_after_equal_seconds():
    """In logarithms of the cost, both fall by equal shares: one from 4 to 1 in 192 trials, the other to 2 in 48."""
    slow = curve_of(256, {64: 3, 128: 1, 256: 0, "end": 0})
    fast = curve_of(64, {16: 3, 64: 1, "end": 1}, search_s=6.4)
    trials, seconds = (figures.MEASURES[f"{what} to a common cost"].paired for what in ("trials", "seconds"))
    assert trials(slow, fast) == pytest.approx(128 / 64)
    assert seconds(slow, fast) == pytest.approx(128 * 0.1 / (64 * 0.2))
    after = figures.MEASURES["cost after equal seconds"].paired
    # The second one ends after 64 * 0.2 s, which are 128 trials of the first one.
    assert after(slow, fast) == pytest.approx(2 / 2) == 1 / after(fast, slow)


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
    found = sections({"tables/constrained": lines, "tables/gpu": measured})
    section, _ = [each for each in found if "Compared with `anole`" in each]
    assert "corrected for all 4 comparisons" in " ".join(section.split()) and "dcoc" not in section
    for variant, begin, verdict in (("random", "2.00 (", ") behind"), ("descent", "1.00 (", ") equivalent")):
        own, same = cells_of(section, f"| {variant} |")[1:]
        assert own == same and own.startswith(begin) and own.endswith(verdict)


def test_the_price_of_a_trial_decides_between_few_trials_and_a_fast_search():
    layers = ("a", "b", "c")
    few = [
        table_run("dcoc", layer, seed, gap=0.0, trials_to_1="10") | {"search_s_to_1%": str(45 + 5 * place)}
        for place, layer in enumerate(layers)
        for seed in range(3)
    ]
    fast = [
        table_run("SA+diverse batch 16", layer, at, gap=0.0, trials_to_1="40") for layer in layers for at in range(3)
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
    job = {"variant": "adatune", "layer": "L8", "space": "open"}
    result = {"ratio_at_end": "1.5", "seconds": "60", "trials": "256"}
    lines = [job | result | {"seed": str(seed), "failed": str(64 * seed)} for seed in range(3)]
    (section,) = sections({"layers": [*lines, lines[0] | {"space": "constrained", "ratio_at_end": ""}]})
    assert "| open | adatune | L8 | 3 | 256 | 1.500 | 60 | 25% |" in section
    assert "| constrained | adatune | L8 | 1 | 256 |  | 60 | 0% |" in section


def test_every_point_of_a_curve_is_a_mean_over_all_runs():
    gaps = [{16: "3", 64: "1", "end": "0"}, {16: "1", "end": "0"}]
    plain = dict.fromkeys((f"gap_at_{n}" for n in CHECKPOINTS), "") | {"space": "open", "variant": "dcoc"}
    found = points([plain | {f"gap_at_{n}": gap for n, gap in row.items()} for row in gaps])
    assert {(point["panel"], point["title"]) for point in found} == {("open", "DCOC")}
    ratios = {point["trials"]: point["ratio"] for point in found}
    assert [ratios[n] for n in (16, 64, 128)] == pytest.approx([8**0.5, 2**0.5, 1])
