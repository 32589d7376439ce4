"""The roofline of kernels, and warnings about kernels that take much time far from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from anole.documents.build import BuiltKernel, read_build
from anole.documents.evaluation import read_evaluation
from anole.evaluate.timing.kernel_times import KernelTimes
from anole.evaluate.timing.roofline import Roofline, Row, measure_roofline, profile_of, rows_of

from ...tiny_builds import run_python

# With a peak a million times too high, and no minimum duration, all kernels count as slow.
SCRIPT = """
import logging, sys
from pathlib import Path
from anole.evaluate.timing import roofline

roofline.measure_roofline = lambda target, kernels: roofline.Roofline(1e18, 1e18)
roofline._MIN_S = 0.0
logging.basicConfig(stream=sys.stdout)
"""
WARN = f'{SCRIPT}roofline.warn_of_slow_kernels(Path("net"), 0.0)'
EVALUATE = f"""{SCRIPT}
from anole.evaluate.stage import evaluate_network
evaluate_network(Path("net"), Path(sys.argv[1]), lambda build, folder: build)
"""


def row(kernel: str, share: float, roofline: float, seconds: float = 1e-3, calls: int = 1) -> Row:
    return Row(kernel, ("layer",), calls, seconds, share, 10, 10, roofline)


def test_slow_kernels_are_identified() -> None:
    rows = [
        row("slow", 0.06, 0.29),
        row("slowest", 0.5, 0.05),
        row("fast", 0.4, 0.31),
        row("rare", 0.04, 0.01),
        row("short", 0.2, 0.01, seconds=5e-5, calls=10),
    ]
    assert [each.kernel for each in rows if each.is_slow] == ["slow", "slowest"]


class Machine:
    """A processor that multiplies bfloat16 twice as fast as float32."""

    def peak_gflops(self, dtype: str = "float32") -> float:
        return {"float32": 100.0, "bfloat16": 200.0}[dtype]

    def copy_bytes_per_s(self) -> float:
        return 1e9


def test_the_roofline_depends_on_a_kernels_precision() -> None:
    kernels = [
        BuiltKernel("float32", 2, None, (), 10**8, 10),
        BuiltKernel("bfloat16", 2, None, (), 10**8, 10, "bfloat16"),
    ]
    assert measure_roofline(Machine(), kernels[:1]) == Roofline(1e11, 1e9)
    peak, times = measure_roofline(Machine(), kernels), KernelTimes({"float32": 4e-3, "bfloat16": 2e-3}, 1e-2)
    assert [row.roofline for row in rows_of(kernels, times, peak)] == [pytest.approx(0.5)] * 2
    profile = profile_of(kernels, times, peak)
    assert (profile.peak_flop_per_s, [each.peak_flop_per_s for each in profile.kernels]) == (1e11, [None, 2e11])


@pytest.mark.guard
def test_slow_kernels_are_logged_with_their_layers(tiny_project: Path) -> None:
    lines = run_python(tiny_project, "-c", WARN).stdout.splitlines()
    shares = [int(line.split(" takes ")[1].split()[0]) for line in lines]
    assert shares and shares == sorted(shares, reverse=True) and shares[-1] >= 5
    assert all("net: " in line and "at 0 % of its roofline (" in line for line in lines)
    assert any("net: stem.0 takes " in line and "; kernel fused_conv2d" in line for line in lines)


@pytest.mark.slow
def test_evaluating_a_network_logs_its_slow_kernels(tiny_project: Path, tmp_path: Path) -> None:
    lines = run_python(tiny_project, "-c", EVALUATE, str(tmp_path / "evaluation.json")).stdout.splitlines()
    evaluation = read_evaluation(tmp_path / "evaluation.json")
    assert len(evaluation.latencies) == 2
    profile = evaluation.kernel_profile
    assert profile is not None and profile.peak_flop_per_s == 1e18
    kernels = {kernel.name: kernel for kernel in read_build(tiny_project / "net").kernels or ()}
    assert profile.kernels and all(kernels[each.kernel].calls == each.calls for each in profile.kernels)
    assert 0.5 < sum(each.latency_s for each in profile.kernels) / profile.whole_s < 1.5
    assert lines and all("net: " in line and "; kernel " in line for line in lines)
