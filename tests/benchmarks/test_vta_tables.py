"""The tables with searched buffers: a line for each program, and the latency of every valid config."""

from __future__ import annotations

import numpy as np
import pytest

from anole.errors import ConfigError, StoreError
from anole.record import Status
from anole.search.presets import read_tuner
from anole.targets.vta.target import VtaTarget
from anole.task import Conv2d
from benchmarks.accelerator import tables as vta_tables
from tests.kit.tables import replay

TINY = Conv2d(2, 4, 2, 16, 24, (1, 1))
TARGET = VtaTarget(vta_tables.DESCRIPTION)


class Here:
    """A pool of processes that runs everything in this one."""

    map = staticmethod(map)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A small layer, its table simulated."""
    monkeypatch.setattr(vta_tables, "LAYERS", (TINY,))
    monkeypatch.setattr(vta_tables, "BUFFER_TABLES", tmp_path)
    path = vta_tables.buffer_table_path(TINY)
    path.write_bytes(vta_tables._programs(TINY, Here()))
    vta_tables.buffer_table.cache_clear()
    yield path
    vta_tables.buffer_table.cache_clear()


def test_every_valid_config_has_the_cycles_of_its_program(tiny):
    table = vta_tables.buffer_table(tiny.name.removesuffix(".csv.xz"))
    space = table.space
    assert len(table.latencies_s) == len(space.every_valid_index) > 1_000
    for vector in space.sample(40, np.random.default_rng(0)):
        config = space.config(vector)
        (measured,) = table.measure([config])
        try:
            assert measured.latency_s == TARGET.simulate(TINY, config)
        except ConfigError:
            assert measured.status is Status.RUN_ERROR
    # Each is simulated once: that is what makes so many configs affordable.
    programs, indices, of_each = vta_tables.distinct_programs(TINY, space)
    assert len(indices) == len(programs) < len(of_each) / 10
    assert sorted(set(of_each.tolist())) == list(range(len(programs)))
    run = replay(table, read_tuner({"preset": "random"}), 50, 0)
    assert len(run.trials) == 50 and table.best_s > 0


def test_a_table_of_other_programs_is_refused(tiny, monkeypatch):
    name = tiny.name.removesuffix(".csv.xz")
    recorded = vta_tables.distinct_programs
    monkeypatch.setattr(vta_tables, "distinct_programs", lambda *each: (recorded(*each)[0] + 1, *recorded(*each)[1:]))
    with pytest.raises(StoreError, match="was simulated with other programs than the template has now"):
        vta_tables.buffer_table(name)
    with pytest.raises(StoreError, match="has no table"):
        vta_tables.buffer_table("3-3_k1x1_s1_1x1")


@pytest.mark.slow
@pytest.mark.parametrize("name", vta_tables.buffer_tables())
def test_what_was_simulated_is_still_of_its_space(name):
    table = vta_tables.buffer_table(name)
    layer = {vta_tables.buffer_table_path(each).name: each for each in vta_tables.LAYERS}[f"{name}.csv.xz"]
    assert len(table.latencies_s) >= 100_000
    for vector in table.space.vectors(table.space.every_valid_index[:: len(table.latencies_s) // 5]):
        config = table.space.config(vector)
        (measured,) = table.measure([config])
        try:
            assert measured.latency_s == TARGET.simulate(layer, config)
        except ConfigError:
            assert measured.latency_s is None
