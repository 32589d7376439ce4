"""The report on shared machines: mean and least speedups of each engine, from the files of four benchmarks."""

from __future__ import annotations

from benchmarks.shared.report import alone, at_once, found, means_under_load, small, under_load, within_quota


def test_own_threads_are_compared_with_those_of_tvm() -> None:
    rows = [{"network": network, "speedup": speedup} for network, speedup in (("resnet18", "1.01"), ("other", "1"))]
    assert list(alone(rows)) == [
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
    table = list(under_load(rows))
    assert table[2] == "| ResNet-18 | 10, 10 | 2.00, 2.00 |"
    assert len(table) == 2 + 2
    assert list(means_under_load(rows))[3] == "| OpenVINO | 2 | 4.00x | 0.50x | 2.00x ResNet-18 | 0.50x ResNet-18 |"


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
    assert list(at_once(rows))[2:] == [
        "| two networks in two processes | ONNX Runtime | 2 | 4.00x | 2.00x | a and VGG-11 |",
        "| four instances in one process | ONNX Runtime | 1 | 3.00x | 3.00x | a |",
    ]
    limited = [
        {"engine": "anole", "threads": threads, "speedup": speedup}
        for threads, speedup in (("own", "1"), ("1", "1.0"), ("2", "1"), ("2", "4"))
    ]
    assert list(within_quota(limited))[3] == "| Anole | 2 | 2 | 2.00x | 1.00x | 4.00x |"


def test_small_networks_are_compared_as_library_and_as_build() -> None:
    row = {
        **{"network": "lstm", "library_ms": "0.0352", "onnxruntime_ms": "0.07", "speedup_over_onnxruntime": "2"},
        "build_speedup_over_onnxruntime": "1.75",
    }
    assert list(small([row]))[2:] == ["| lstm | 35 µs | 70 µs | 2.00x | 1.75x |"]


def test_what_comparisons_found_is_counted_by_what_was_planted() -> None:
    said = [("0", "equal", "4"), ("2", "slower", "6"), ("0", "open", "60"), ("2", "slower", "8"), ("0", "equal", "5")]
    rows = [
        {"build": "net", "planted_percent": planted, "verdict": verdict, "seconds": seconds}
        for planted, verdict, seconds in said
    ]
    assert list(found(rows))[2:] == [
        "| net | 0 % | 3 | 0 | 2 | 1 | 0 | 5 s |",
        "| net | 2 % | 2 | 2 | 0 | 0 | 0 | 7 s |",
    ]
