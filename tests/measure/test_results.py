"""Which artifacts of candidates are kept and which are removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.measure.builders import Built
from anole.measure.results import Results


def make_built(folder: Path, name: int) -> Built:
    artifact = folder / f"{name}.so"
    artifact.touch()
    return Built(0, {"name": name}, artifact, build_s=0.1)


@given(latencies_s=st.lists(st.none() | st.floats(1e-6, 1.0), max_size=12, unique=True), most=st.integers(1, 5))
def test_only_the_fastest_are_kept(
    tmp_path_factory: pytest.TempPathFactory, latencies_s: list[float | None], most: int
) -> None:
    folder, results = tmp_path_factory.mktemp("artifacts"), Results(1e-4, max_kept=most)
    candidates = [make_built(folder, name) for name in range(len(latencies_s))]
    for candidate, latency_s in zip(candidates, latencies_s, strict=True):
        results.keep(candidate, latency_s)
    working = [
        (latency_s, candidate) for latency_s, candidate in zip(latencies_s, candidates, strict=True) if latency_s
    ]
    fastest = [candidate for _, candidate in sorted(working, key=lambda pair: pair[0])[:most]]
    assert set(folder.iterdir()) == {candidate.artifact for candidate in fastest}
    assert [candidate in fastest for candidate in candidates] == [
        results.find(candidate.config) is candidate for candidate in candidates
    ]


def test_a_candidate_that_runs_again_stays(tmp_path: Path) -> None:
    results, candidate = Results(1e-4), make_built(tmp_path, 0)
    results.keep(candidate, 1e-3)
    results.keep(candidate, None)
    assert results.find({"name": 0}) is candidate and candidate.artifact.exists()
    assert results.find({"name": 1}) is None
