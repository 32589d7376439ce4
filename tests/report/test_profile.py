"""Profiles list the kernels of a build in order; builds that cannot be profiled are rejected with a reason."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from anole.documents.build import Build, Coverage, read_build, write_build
from anole.errors import BuildError
from anole.report.profile import Profile, Roofline, Row, profile_build, render_profile
from anole.targets.cpu.settings import describe_cpu
from anole_cuda.settings import describe_cuda
from anole_cuda.target import CudaTarget
from anole_vta.settings import describe_vta

from ..terminal import rendered
from ..tiny_builds import build_tiny, run_python

PROFILE_NET = """
import json, sys
from pathlib import Path
from anole.report.profile import profile_build

print(json.dumps(profile_build(Path("net"), float(sys.argv[1])).to_json()))
"""


def profiled(project: Path, seconds: float) -> dict[str, Any]:
    """Profile the build ``net`` of a project for some seconds."""
    run = run_python(project, "-c", PROFILE_NET, str(seconds))
    return dict(json.loads(run.stdout.splitlines()[-1]))


def test_every_kernel_is_timed_in_the_order_of_the_network(tiny_project: Path) -> None:
    profile = profiled(tiny_project, 0.0)
    kernels = read_build(tiny_project / "net").kernels
    assert kernels is not None
    assert [row["kernel"] for row in profile["rows"]] == [kernel.name for kernel in kernels]
    layers = [row["layers"] for row in profile["rows"] if row["flop"]]
    assert layers == [["stem.0"], ["first.0"], ["second.0"], ["head"]]
    for row in profile["rows"]:
        assert row["seconds"] > 0
        assert row["share"] == pytest.approx(row["seconds"] / profile["whole_s"])
        rates = row["flop"] / profile["peak"]["flop_per_s"], row["size_bytes"] / profile["peak"]["bytes_per_s"]
        assert row["roofline"] == pytest.approx(max(rates) / row["seconds"])
    assert profile["kernels_s"] == pytest.approx(sum(row["seconds"] for row in profile["rows"]))


@pytest.mark.slow
def test_kernel_times_add_up_to_the_latency(tmp_path: Path) -> None:
    build_tiny(tmp_path, 1, 3, 96, 96)
    profile = profiled(tmp_path, 5.0)
    assert profile["kernels_s"] == pytest.approx(profile["whole_s"], rel=0.1)


def a_build_for(description: Mapping[str, Any]) -> Build:
    """Return a build of an empty network for a target, without kernels."""
    entry = {"source": "torch:tiny:residual", "inputs": {"x": [1, 3, 96, 96]}}
    return Build(
        "net", "net", entry, "target", description, preset="autotvm", trials=0, seed=0, inputs=(), outputs=(), tasks=(),
        created_at="2026-11-21T11:00:00.000Z", coverage=Coverage(0, 0, 0.0), versions={},
    )  # fmt: skip


GPU, SIMULATOR = {**describe_cuda(arch="sm_90"), "kind": "cuda"}, {**describe_vta(), "kind": "vta"}
ABSENCE = CudaTarget(GPU).absence() or "is for cuda; only builds for the CPU can be profiled"


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (GPU, re.escape(ABSENCE)),
        (SIMULATOR, "is for vta, which is simulated; see `anole vta`"),
        # Older versions of Anole described no kernels.
        (describe_cpu(), "build.json has no kernels; compile the build again"),
    ],
    ids=["gpu", "simulator", "old"],
)
def test_a_build_that_cannot_be_profiled_is_rejected(
    tmp_path: Path, description: Mapping[str, Any], message: str
) -> None:
    write_build(tmp_path, a_build_for(description))
    with pytest.raises(BuildError, match=f"{re.escape(str(tmp_path))}: {message}"):
        profile_build(tmp_path, 0.0)


PEAK = Roofline(flop_per_s=1e12, bytes_per_s=1e10, peak_by_dtype={"bfloat16": 2e12})
ROWS = (
    Row("fused_conv2d_add_relu", ("layer1.0.conv1", "layer1.1.conv1_of_a_long_name"), 2, 2e-3, 0.8, 10**9, 10**6, 0.5),
    Row("max_pool2d1", (), 1, 4e-4, 0.16, 0, 2 * 10**6, 0.2),
)
TABLE = render_profile(Profile("net-cpu", 2, ROWS, 2.4e-3, 2.5e-3, PEAK))


def test_the_minimum_time_is_limited_by_arithmetic_or_memory() -> None:
    assert PEAK.min_s(10**9, 10**6) == pytest.approx(1e-3)
    assert PEAK.min_s(10**9, 10**8) == pytest.approx(1e-2)
    assert PEAK.min_s(10**9, 10**6, "bfloat16") == pytest.approx(5e-4)


@pytest.mark.parametrize("width", [80, 160])
def test_a_terminal_of_any_width_shows_all_numbers(width: int) -> None:
    title, roofline, header, *lines = (
        re.split(r"\s{2,}", line.strip()) for line in rendered(TABLE, width).splitlines()
    )
    assert title == ["net-cpu: 2.50 ms with 2 threads"]
    assert roofline == ["roofline: 1,000 GFLOP/s (2,000 of bfloat16) and 10.0 GB/s, measured afterwards"]
    assert header == ["layers", "calls", "time", "share", "rate", "of roofline"]
    assert [line[1:] for line in lines] == [
        ["2", "2.00 ms", "80.0 %", "500 GFLOP/s", "50 %"],
        ["1", "400 µs", "16.0 %", "5.00 GB/s", "20 %"],
        ["3", "2.40 ms", "96.0 %"],
    ]
    conv, pool, kernels = (line[0] for line in lines)
    assert (pool, kernels) == ("max_pool2d", "all kernels")
    assert (conv == ", ".join(ROWS[0].layers)) == (width == 160)
    assert conv.startswith("layer1.0.conv1, ") and conv.endswith("…" if width == 80 else "_name")


def test_a_kernel_far_below_the_roofline_is_highlighted() -> None:
    lines = rendered(TABLE, 80, color_system="standard", force_terminal=True).splitlines()
    (yellow,) = (line for line in lines if "\x1b[33m" in line)
    assert "max_pool2d" in yellow
