"""The problems in the package: their files, splits, and spaces, which match the templates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anole.bench import load, names
from anole.bench.tables import FOLDER, files, read_table, splits
from anole.errors import StoreError
from anole.targets import get_target
from anole.task import Conv2d

WORKLOAD = Conv2d(1, 8, 8, 4, 16, (1, 1))
TARGET = {"kind": "cpu", "mcpu": "x86-64-v3", "model": "any", "features": ["avx2", "fma"], "threads": 1}
RESTRICTION = {"auto_unroll_max_step": [0], "tile_rc": [[1, 4], [4, 1]]}


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Path]:
    """Return a writer of tables with failures for every third config, and indices as microseconds for the others."""
    space = get_target(TARGET).space(WORKLOAD).restrict(RESTRICTION)
    assert space.valid_indices is not None

    def write(**changes: Any) -> Path:
        table = {
            "workload": asdict(WORKLOAD),
            "restriction": RESTRICTION,
            "target": TARGET,
            "cardinalities": space.cardinalities.tolist(),
            "latency_us": [None if row % 3 == 0 else 1.0 + index for row, index in enumerate(space.valid_indices)],
        }
        path = tmp_path / "table.json"
        path.write_text(json.dumps({**table, **changes}))
        return path

    return write


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cardinalities": [1, 2]}, r"cardinalities \[1, 2\].* record it again"),
        ({"latency_us": [1.0]}, "with 1 valid configs"),
        ({"workload": {"height": 3}}, "is not a table"),
        ({"latency_us": ["fast"]}, "is not a table"),
    ],
)
def test_a_table_of_another_space_is_refused(
    recorded: Callable[..., Path], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(StoreError, match=message):
        read_table(recorded(**changes))


def test_a_missing_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"none.json: is not a table \(FileNotFoundError"):
        read_table(tmp_path / "none.json")


@pytest.mark.parametrize("family", ["cpu", "gpu"])
def test_recorded_tables_still_match_their_spaces(family: str) -> None:
    for name in files(family):
        problem = load(f"{family}/{name}")
        assert len(problem.latencies_s) == len(problem.space.all_valid_indices) and problem.optimum > 0


def test_the_published_gpu_space_has_failures_and_its_published_optimum() -> None:
    problem = load("gpu/convolution_rtx_2080_ti")
    assert problem.space.size == 16_896 and len(problem.latencies_s) == 6_768
    assert np.isnan(problem.latencies_s).sum() == 1_512 and problem.best_s == pytest.approx(900.26e-6)
    config = {"block_size_x": 2, "block_size_y": 32, "read_only": 0, "tile_size_x": 1, "tile_size_y": 1}
    measured = list(problem.measure([config | {"use_padding": padding} for padding in (0, 1)]))
    assert [each.latency_s for each in measured] == pytest.approx([15.9364e-3, 2.85772e-3], rel=1e-5)


@pytest.mark.guard
def test_an_open_problem_has_the_constrained_ones_latencies_and_more_failures() -> None:
    constrained, whole = (load(f"vta_{space}/64-128_k1x1_s2_56x56") for space in ("constrained", "open"))
    assert whole.space.size == len(whole.latencies_s) > len(constrained.latencies_s)
    np.testing.assert_array_equal(
        np.sort(whole.costs_s[np.isfinite(whole.costs_s)]),
        np.sort(constrained.costs_s[np.isfinite(constrained.costs_s)]),
    )
    assert load("vta_open/64-128_k1x1_s2_56x56") is whole and whole.space.valid_indices is not None


def test_every_file_is_in_one_split_unchanged() -> None:
    found = {
        path.relative_to(FOLDER).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in FOLDER.glob("*/*")
    }
    dev, test = splits()["dev"], splits()["test"]
    assert not set(dev) & set(test) and {**dev, **test} == found


def test_a_split_has_some_of_the_names() -> None:
    assert sorted([*names("dev"), *names("test")]) == sorted(names()) and len(set(names())) == len(names())
    assert {"cpu/L8", "gpu/convolution_rtx_2080_ti", "vta/64-64_k3x3_s1_56x56"} <= set(names("dev"))


def test_an_unknown_problem_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(StoreError, match="cpu/L9: there is no such problem or file; did you mean 'cpu/L8'"):
        load("cpu/L9")
