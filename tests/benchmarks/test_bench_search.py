"""The experiments on search methods: what they run, what they report, and the page of claims made from it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.search import exact as search_tables
from benchmarks.search import layers as search_layers
from benchmarks.search import networks as search_networks
from benchmarks.search.claims import page, read_data
from benchmarks.search.paper_claims import CLAIMS
from benchmarks.search.run import EXPERIMENTS, FOLDER
from benchmarks.search.variants import TABLE_VARIANTS, sized_as

from ..tiny_builds import HOME

LAYER = "64-128_k1x1_s2_56x56"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_job_occurs_once_and_has_all_keys(name):
    jobs = list(EXPERIMENTS[name].jobs())
    assert len(set(jobs)) == len(jobs)
    assert all(len(job) == len(EXPERIMENTS[name].keys) and all(isinstance(each, str) for each in job) for job in jobs)


@pytest.mark.parametrize("experiment", [search_tables.TABLES, search_layers.LIVE])
def test_the_first_jobs_compare_all_variants_with_one_seed(experiment):
    jobs = [dict(zip(experiment.keys, job, strict=True)) for job in experiment.jobs()]
    firsts = [job for job in jobs if job["seed"] == "0"]
    assert jobs[: len(firsts)] == firsts
    assert len({job["variant"] for job in firsts}) == len({job["variant"] for job in jobs})


def test_a_version_tells_tuners_layers_and_spaces_apart():
    for experiment in (search_tables.TABLES, search_layers.LIVE, search_networks.TUNING):
        seen = {}
        for job in experiment.jobs():
            *names, _, version = job
            assert seen.setdefault(version, names) == names or experiment is search_networks.TUNING


@pytest.mark.parametrize("variant", ["random", "SA+AS"])
def test_a_run_on_a_table_reports_its_columns(variant, monkeypatch):
    monkeypatch.setattr(search_tables, "TRIALS", 48)
    (row,) = search_tables.run((LAYER, "open", variant, "0", "any"))
    assert set(row) == set(search_tables.TABLES.columns)
    assert int(row["trials"]) == 48 == sum(map(int, row["batches"].split()))
    assert 0 < int(row["failed"]) < 48
    assert float(row["gap_at_16"]) >= float(row["gap_at_end"]) >= 0


def test_a_control_has_the_batches_of_the_run_beside_which_it_is(monkeypatch):
    monkeypatch.setattr(search_tables, "TRIALS", 80)
    control = "SA+greedy sizes of AS"
    (own,), (other,) = (
        search_tables.run((LAYER, "constrained", each, "3", "any"))
        for each in (control, sized_as(control, TABLE_VARIANTS))
    )
    assert own["batches"] == other["batches"]


@pytest.mark.slow
@pytest.mark.parametrize("space", search_layers.SPACES)
def test_a_live_run_reports_its_columns(space, monkeypatch):
    monkeypatch.setattr(search_layers, "TRIALS", 32)
    (row,) = search_layers.run(("L8", space, "SA+greedy batch 16", "0", "any"))
    assert set(row) == set(search_layers.LIVE.columns)
    assert row["trials"] == 32 and float(row["ratio_at_256"]) > 0


def run_of(variant, layer, seed, gap):
    """Returns a line of the experiment on tables: a run of one batch of 16 and of 48 trials."""
    found = {"variant": variant, "layer": layer, "seed": str(seed), "trials": "48", "gap_at_256": str(gap)}
    return dict.fromkeys(search_tables.TABLES.columns, "") | found | {"batches": "16 16 16", "converged_at": "1"}


def row_of(told, claim):
    (row,) = [line for line in told.splitlines() if line.startswith("|") and claim in line]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_the_page_of_claims_tells_what_is_measured_and_what_is_not():
    assert "Of 0 measured claims" in page({}) and all(claim.claim in page({}) for claim in CLAIMS)
    rng = np.random.default_rng(0)
    lines = [
        run_of(variant, layer, seed, gap + rng.uniform(0, 0.1))
        for layer in "abcdef"
        for seed in range(2)
        for variant, gap in (("SA+greedy", 0), ("PPO+greedy", 0), ("autotvm", 1), ("SA+AS", 0), ("chameleon", 0))
    ]
    told = page({"tables/constrained": lines})
    counted = "Of 5 measured claims, 2 are about the gain of a method: 1 hold, 0 do not hold, 1 are undecided"
    assert counted in " ".join(told.split())
    *_, here, setting, p, verdict = row_of(told, "faster code than AutoTVM's diversity, with annealing")
    assert "12/6)" in here and setting.endswith("256 trials") and float(p.strip("< ")) < 0.05
    assert verdict == "holds"
    assert row_of(told, "in 16 iterations, with annealing")[-2:] == ["", CLAIMS[3].flaw]
    assert row_of(told, "PPO converges in fewer steps")[-1].startswith("artefact: ")


def test_the_more_claims_there_are_the_more_evidence_one_needs():
    rng = np.random.default_rng(3)
    names = ("SA+AS", "autotvm", "chameleon", "PPO+diverse", "dcoc", "MAPPO+greedy")
    lines = [
        run_of(name, layer, 0, rng.uniform(0, 0.1) + 0.06 * (name == "autotvm")) for layer in "abcdef" for name in names
    ]
    claim = "faster code than AutoTVM's diversity, with annealing"
    alone, among = (
        row_of(page({"tables/constrained": [line for line in lines if line["variant"] in names[:n]]}), claim)
        for n in (2, len(names))
    )
    assert alone[3] == among[3] and float(alone[-2]) < float(among[-2])


def test_the_page_of_claims_is_made_from_the_files():
    found = (HOME / "docs/results/claims.md").read_text(encoding="utf-8")
    assert found == page(read_data(HOME / FOLDER))
