"""The tables that put search methods side by side, and whole networks on the accelerator."""

from __future__ import annotations

import pytest

from benchmarks.accelerator import networks as search_accelerator
from benchmarks.accelerator.networks import ACCELERATOR, VARIANTS, network_rows
from benchmarks.search.exact import CHECKPOINTS
from benchmarks.search.exact import TABLES as ON_TABLES
from benchmarks.search.report import sections


def run_of(variant, layer, seed, *, gap, trials_to_1="", search_s="2.0"):
    """Returns a line of the experiment on tables."""
    plain = {f"gap_at_{n}": str(gap) for n in (*CHECKPOINTS, "end")}
    reached = {"trials": "200", "trials_to_1%": trials_to_1, "search_s_to_1%": "1.0" if trials_to_1 else ""}
    named = {"variant": variant, "layer": layer, "seed": str(seed)}
    return dict.fromkeys(ON_TABLES.columns, "") | plain | reached | named | {"search_s": search_s}


def cells_of(section, first):
    """Returns the cells of a table's row by its first cell."""
    (row,) = [line for line in section.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_nothing_measured_gives_no_section():
    assert sections({}) == []


def test_variants_are_compared_only_where_all_have_runs():
    lines = [run_of("dcoc", layer, seed, gap=0.5) for layer in "ab" for seed in range(3)]
    lines += [run_of("random", "a", seed, gap=1.0) for seed in range(3)]
    (section,) = sections({"tables/constrained": lines})
    assert "over the optimum's in 3 runs:" in " ".join(section.split())
    assert cells_of(section, "random")[2].startswith("2.000")


def test_a_search_in_which_nothing_works_counts_and_has_no_median():
    (section,) = sections({"tables/open": [run_of("random", "a", 0, gap="inf")]})
    assert cells_of(section, "random")[2].startswith("100.000")
    assert cells_of(section, "random")[4:6] == ["0%", ""]


def test_the_price_of_a_trial_decides_between_few_trials_and_a_fast_search():
    few = [run_of("dcoc", "a", seed, gap=0.0, trials_to_1="10") | {"search_s_to_1%": "50"} for seed in range(3)]
    fast = [run_of("SA+greedy batch 16", "a", seed, gap=0.0, trials_to_1="40") for seed in range(3)]
    section = sections({"tables/constrained": few + fast})[-1]
    ratios = [float(cell) for cell in cells_of(section, "dcoc")[1:]]
    assert ratios == sorted(ratios, reverse=True) and ratios[0] > 10 and ratios[-1] < 0.4


def test_networks_are_listed_with_what_was_only_timed():
    tuned = [{"network": "x", "tuner": "anole", "seconds": "90.2", "trials": "500"}]
    timed = [
        {"network": "x", "engine": name, "latency_ms": ms, "ratio": ratio}
        for name, ms, ratio in (("anole", "9.4", "1.0"), ("onnxruntime", "17.6", "1.87"))
    ]
    (section,) = sections({"networks_tuned": tuned, "networks_timed": timed})
    assert "| x | anole | 90 | 500 | 9.40 | 1.00 |" in section
    assert "| x | onnxruntime |  |  | 17.60 | 1.87 |" in section


def test_live_layers_are_told_by_space_with_their_failures():
    plain = {"variant": "adatune", "layer": "L8", "ratio_at_256": "1.5", "seconds": "60", "trials": "256"}
    lines = [plain | {"seed": str(seed), "failed": str(64 * seed)} for seed in range(3)]
    (section,) = sections({"layers/open": lines, "layers/constrained": [lines[0] | {"ratio_at_256": ""}]})
    assert "| open | adatune | 3 | 1.500 (1.500-1.500) | 60 | 25% |" in section
    assert "| constrained | adatune | 1 |  | 60 | 0% |" in section


@pytest.fixture
def two_layers(monkeypatch):
    """A network of two layers with exact tables."""
    layers = {"64-128_k1x1_s2_56x56": 1, "256-512_k1x1_s2_14x14": 2}
    monkeypatch.setattr(search_accelerator, "networks", lambda: {"two": layers})
    search_accelerator._optimum_s.cache_clear()
    yield layers
    search_accelerator._optimum_s.cache_clear()


def test_a_network_has_one_block_and_at_least_the_optimum(two_layers, monkeypatch):
    monkeypatch.setattr(search_accelerator, "TRIALS", 24)
    lines = []
    for variant in ("random", "autotvm"):
        for layer in two_layers:
            (row,) = search_accelerator.run((layer, variant, "0", "any"))
            assert set(row) == set(ACCELERATOR.columns)
            lines.append({"layer": layer, "variant": variant, "seed": "0", **row})
    found = network_rows(lines)
    assert [(row["network"], row["variant"]) for row in found] == [("two", "random"), ("two", "autotvm")]
    assert all(float(row["latency_s"]) >= float(row["optimum_s"]) > 0 for row in found)
    assert network_rows(lines[:1]) == []


def test_trying_everything_reaches_a_networks_optimum(two_layers):
    tried = {layer: search_accelerator._all_blocks(layer) for layer in two_layers}
    assert search_accelerator._least_s(two_layers, tried) == search_accelerator._optimum_s("two")
    fixed = {layer: {} for layer in two_layers}
    assert search_accelerator._least_s(two_layers, fixed) > search_accelerator._optimum_s("two")


def test_all_variants_of_the_accelerator_are_compared_with_the_first_seed(two_layers):
    jobs = list(search_accelerator.jobs())
    assert {job[1] for job in jobs[: 2 * len(VARIANTS)]} == set(VARIANTS)
