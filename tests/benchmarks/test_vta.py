"""Exact tables of the accelerator: a row for each program, the latency of every valid config, and entire networks."""

from types import SimpleNamespace

import numpy as np
import pytest

from anole.bench import load
from anole.bench import tables as recorded
from anole.bench.ask_tell import replay
from anole.errors import ConfigError, StoreError
from anole.record import Status
from anole.search.presets import read_tuner
from anole.task import Conv2d
from anole_vta.target import VtaTarget
from benchmarks.vta import networks, tables
from benchmarks.vta.networks import ACCELERATOR, VARIANTS

TINY = Conv2d(2, 4, 2, 16, 24, (1, 1))
TARGET = VtaTarget(tables.DESCRIPTION)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A small layer, its table simulated."""
    monkeypatch.setattr(tables, "LAYERS", (TINY,))
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    (tmp_path / "vta_buffers").mkdir()
    path = tables.buffer_table_path(TINY)
    path.write_bytes(tables._programs(TINY, SimpleNamespace(map=map)))
    tables.write_workloads()
    recorded._load.cache_clear()
    yield f"vta_constrained/{path.name.removesuffix('.csv.xz')}"
    recorded._load.cache_clear()


def test_every_valid_config_has_the_cycles_of_its_program(tiny):
    table = load(tiny)
    space = table.space
    assert len(table.latencies_s) == len(space.all_valid_indices) > 1_000
    for vector in space.sample(40, np.random.default_rng(0)):
        config = space.config(vector)
        (measured,) = table.measure([config])
        try:
            assert measured.latency_s == TARGET.simulate(TINY, config)
        except ConfigError:
            assert measured.status is Status.RUN_ERROR
    # Each is simulated once, which makes so many configs affordable.
    programs, indices, of_each = recorded.distinct_programs(space)
    assert len(indices) == len(programs) < len(of_each) / 10
    assert sorted(set(of_each.tolist())) == list(range(len(programs)))
    run = replay(table, read_tuner({"preset": "random"}), 50, 0)
    assert len(run.trials) == 50 and table.best_s > 0


def test_a_table_of_other_programs_is_refused(tiny, monkeypatch):
    found = recorded.distinct_programs
    monkeypatch.setattr(recorded, "distinct_programs", lambda *each: (found(*each)[0] + 1, *found(*each)[1:]))
    with pytest.raises(StoreError, match="was simulated with other programs than the template has now"):
        load(tiny)


@pytest.mark.slow
@pytest.mark.parametrize("name", recorded.files("vta_constrained"))
def test_simulated_configs_are_still_in_their_space(name):
    table = load(f"vta_constrained/{name}")
    layer = {tables.buffer_table_path(each).name: each for each in tables.LAYERS}[f"{name}.csv.xz"]
    assert len(table.latencies_s) >= 75_000
    for vector in table.space.vectors(table.space.all_valid_indices[:: len(table.latencies_s) // 5]):
        config = table.space.config(vector)
        (measured,) = table.measure([config])
        try:
            assert measured.latency_s == TARGET.simulate(layer, config)
        except ConfigError:
            assert measured.latency_s is None


@pytest.fixture
def two_layers(monkeypatch):
    """A network of two layers with exact tables."""
    layers = {"64-128_k1x1_s2_56x56": 1, "256-512_k1x1_s2_14x14": 2}
    monkeypatch.setattr(networks, "networks", lambda: {"two": layers})
    networks._optimum_s.cache_clear()
    yield layers
    networks._optimum_s.cache_clear()


def test_a_network_has_one_block_and_at_least_the_optimum(two_layers, monkeypatch):
    monkeypatch.setattr(networks, "TRIALS", 24)
    for variant in ("random", "autotvm"):
        (row,) = networks.run(("two", variant, "0", "any"))
        assert set(row) == set(ACCELERATOR.columns)
        assert float(row["latency_s"]) >= float(row["optimum_s"]) > 0 and 2 == row["layers"] >= row["optimal_layers"]


def test_trying_everything_reaches_a_networks_optimum(two_layers):
    tried = {layer: networks._all_blocks(layer) for layer in two_layers}
    assert networks._min_s(two_layers, tried) == networks._optimum_s("two")
    fixed = {layer: {} for layer in two_layers}
    assert networks._min_s(two_layers, fixed) > networks._optimum_s("two")


def test_all_variants_of_the_accelerator_are_compared_with_the_first_seed(two_layers):
    jobs = list(networks.jobs())
    assert {job[1] for job in jobs[: len(VARIANTS)]} == set(VARIANTS)
