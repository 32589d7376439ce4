"""Benchmarks of builds on shared machines: a short run of each on a tiny build, and the report of known figures."""

from __future__ import annotations

import pytest

from anole.errors import AnoleError
from benchmarks.shared import neighbours, quota, throughput
from benchmarks.shared.report import load_rows, parallel_rows, quota_rows, small_rows, thread_gains, verdict_rows

from .conftest import Benchmark


@pytest.mark.slow
def test_builds_and_rivals_are_timed_under_background_load(benchmark: Benchmark) -> None:
    short = ("--rounds", "1", "--turn", "0", "--rivals", "onnxruntime")
    rows, said = benchmark("shared.neighbours", "net", "elsewhere", "--neighbours", "0,1", *short)
    assert tuple(rows[0]) == neighbours.COLUMNS
    engines = [(row["engine"], row["neighbours"], row["runs"]) for row in rows]
    assert engines == [(name, count, "8") for count in "01" for name in ("anole", "onnxruntime")]
    for row in rows:
        assert (row["network"], row["batch"], row["threads"], row["rounds"]) == ("net", "2", "1", "1")
        assert 0 < float(row["p50_ms"]) <= float(row["p95_ms"]) <= float(row["p99_ms"])
    assert (rows[0]["p50_speedup"], rows[2]["p99_speedup"]) == ("1", "1")
    assert "elsewhere: was not timed: elsewhere/build.json: there is no such file" in said


@pytest.mark.slow
def test_instances_and_pairs_of_builds_are_compared(benchmark: Benchmark) -> None:
    short = ("--rounds", "1", "--turn", "0", "--instances", "2")
    rows, _ = benchmark("shared.throughput", "net", "--rivals", "onnxruntime", *short)
    assert tuple(rows[0]) == throughput.COLUMNS
    assert [(row["case"], row["networks"], row["instances"], row["engine"]) for row in rows] == [
        (case, networks, instances, engine)
        for case, networks, instances in (("instances", "net", "2"), ("processes", "net+net", "1"))
        for engine in ("anole", "onnxruntime")
    ]
    assert all(float(row["runs_per_s"]) > 0 and float(row["speedup"]) > 0 for row in rows)
    assert rows[0]["speedup"] == rows[2]["speedup"] == "1"


@pytest.mark.slow
def test_engines_are_compared_within_a_quota(benchmark: Benchmark) -> None:
    try:
        with quota.create_limited_group(1.0) as group:
            assert group.is_dir()
    except AnoleError as error:
        pytest.skip(str(error))
    rows, _ = benchmark("shared.quota", "net", "--rounds", "1", "--turn", "0")
    assert tuple(rows[0]) == quota.COLUMNS
    engines = [("anole", "own"), ("anole", "1"), ("onnxruntime", "1")]
    assert [(row["engine"], row["threads"]) for row in rows] == engines
    assert not group.exists()


def test_own_threads_are_compared_with_those_of_tvm() -> None:
    rows = [{"network": network, "speedup": speedup} for network, speedup in (("resnet18", "1.01"), ("other", "1"))]
    assert list(thread_gains(rows)) == [
        "Speedup of own threads: 1.005x in the geometric mean, from 1.000x (other) to 1.010x (ResNet-18)."
    ]


def test_percentiles_are_compared_for_each_number_of_neighbours() -> None:
    rows = [
        {
            **{"network": network, "neighbours": count, "engine": engine, "p50_ms": "10", "p95_ms": "20"},
            **{"p50_speedup": "1" if engine == "anole" else p50, "p95_speedup": "0.5"},
        }
        for network, p50 in (("resnet18", "2"), ("vgg11", "8"))
        for count in "02"
        for engine in ("anole", "openvino")
    ]
    assert list(load_rows(rows))[3] == "| OpenVINO | 2 | 4.00x | 0.50x | 2.00x ResNet-18 | 0.50x ResNet-18 |"


def test_throughput_and_quotas_are_compared_by_case() -> None:
    rows = [
        {"case": case, "networks": networks, "engine": engine, "speedup": speedup}
        for case, networks, speedup in (
            ("processes", "a+vgg11", "2"),
            ("processes", "a+b", "8"),
            ("instances", "a", "3"),
        )
        for engine in ("anole", "onnxruntime")
    ]
    assert list(parallel_rows(rows))[2:] == [
        "| two networks in two processes | ONNX Runtime | 2 | 4.00x | 2.00x | a and VGG-11 |",
        "| four instances in one process | ONNX Runtime | 1 | 3.00x | 3.00x | a |",
    ]
    limited = [
        {"engine": "anole", "threads": threads, "speedup": speedup}
        for threads, speedup in (("own", "1"), ("1", "1.0"), ("2", "1"), ("2", "4"))
    ]
    assert list(quota_rows(limited))[3] == "| Anole | 2 | 2 | 2.00x | 1.00x | 4.00x |"


def test_small_networks_are_compared_as_library_and_as_build() -> None:
    row = {
        **{"network": "lstm", "library_ms": "0.0352", "onnxruntime_ms": "0.07", "speedup_over_onnxruntime": "2"},
        "build_speedup_over_onnxruntime": "1.75",
    }
    assert list(small_rows([row]))[2:] == ["| lstm | 35 µs | 70 µs | 2.00x | 1.75x |"]


def test_verdicts_are_counted_by_planted_slowdown() -> None:
    said = [("0", "equal", "4"), ("2", "slower", "6"), ("0", "open", "60"), ("2", "slower", "8"), ("0", "equal", "5")]
    rows = [
        {"build": "net", "planted_percent": planted, "verdict": verdict, "seconds": seconds}
        for planted, verdict, seconds in said
    ]
    assert list(verdict_rows(rows))[2:] == [
        "| net | 0 % | 3 | 0 | 2 | 1 | 0 | 5 s |",
        "| net | 2 % | 2 | 2 | 0 | 0 | 0 | 7 s |",
    ]
