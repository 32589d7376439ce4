"""The roofline: a row for every kernel of a build, and the plot of such rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anole.documents.build import read_build
from anole.task import BatchMatmul, Conv2d, Dense, Workload
from benchmarks.common.checkout import HOME
from benchmarks.kernels.roofline import COLUMNS, KINDS, OTHER, dot_size, draw, kind_of

from .conftest import Benchmark


@pytest.mark.parametrize(
    ("workload", "algorithm", "kind"),
    [
        (Conv2d(1, 56, 56, 64, 64, (3, 3)), "", "direct convolution"),
        (Conv2d(1, 56, 56, 64, 64, (3, 3)), "direct", "direct convolution"),
        (Conv2d(8, 56, 56, 64, 64, (3, 3)), "winograd", "Winograd"),
        (Conv2d(1, 56, 56, 32, 32, (3, 3), dilation=(2, 2), groups=32), "", "depthwise"),
        (Conv2d(1, 56, 56, 32, 64, (3, 3), groups=4), "", "grouped"),
        (Dense(1, 512, 1000), "", "dense"),
        (BatchMatmul(8, 128, 64, 128), "", "batch_matmul"),
    ],
)
def test_a_kernel_has_the_kind_of_its_task(workload: Workload, algorithm: str, kind: str) -> None:
    assert kind_of(workload.label, algorithm) == kind
    assert kind in KINDS


def test_a_kernel_without_a_task_has_kind_other() -> None:
    assert kind_of("", "") == OTHER and OTHER not in KINDS


def test_every_kernel_of_a_build_has_a_row(tiny_project: Path, benchmark: Benchmark) -> None:
    rows, said = benchmark("kernels.roofline", "kernels", "net", "elsewhere", "--seconds", "0")
    build = read_build(tiny_project / "net")
    assert build.kernels is not None
    assert [row["kernel"] for row in rows] == [kernel.name for kernel in build.kernels]
    labels = {task.key: task.label for task in build.tasks}
    for row, kernel in zip(rows, build.kernels, strict=True):
        assert (row["network"], row["batch"], row["threads"]) == ("net", "2", "1")
        assert row["task"] == labels.get(kernel.task, "")
        assert (row["kind"] in KINDS) == (kernel.task is not None)
        assert float(row["gflop"]) == pytest.approx(kernel.calls * kernel.flop / 1e9, rel=1e-4)
        assert float(row["flop_per_byte"]) == pytest.approx(kernel.flop / kernel.size_bytes, rel=1e-3)
        assert float(row["gb_per_s"]) == pytest.approx(int(row["size_bytes"]) / float(row["time_ms"]) / 1e6, rel=1e-3)
        assert float(row["peak_gflops"]) > 0 and float(row["copy_gb_per_s"]) > 0
    assert "elsewhere: was not profiled: elsewhere/build.json: there is no such file" in said


def line(batch: int, kind: str, share: float, gflops: float, flop_per_byte: float) -> dict[str, str]:
    known = {"batch": batch, "kind": kind, "share": share, "gflops": gflops, "flop_per_byte": flop_per_byte}
    return {**dict.fromkeys(COLUMNS, ""), **{name: str(value) for name, value in known.items()}} | {
        "peak_gflops": "500.0",
        "copy_gb_per_s": "40.00",
    }


LINES = [
    line(1, "Winograd", 0.3, 800, 100),
    line(1, "dense", 0.1, 20, 0.5),
    line(1, OTHER, 0.1, 0, 0),
    *(line(8, "depthwise", 0.01, 100 + number, 4) for number in range(300)),
]


def texts(path: Path) -> list[str]:
    """Return the texts in an SVG plot, which are comments next to the outlines of their letters."""
    return re.findall(r"<!-- (.*?) -->", path.read_text())


def test_a_plot_has_a_panel_for_each_batch_size(tmp_path: Path) -> None:
    draw(LINES, tmp_path / "roofline.svg")
    titles = [text for text in texts(tmp_path / "roofline.svg") if text.startswith("batch ")]
    assert titles == ["batch 1: 500 GFLOP/s and 40.0 GB/s", "batch 8: 500 GFLOP/s and 40.0 GB/s"]
    assert set(KINDS) <= set(texts(tmp_path / "roofline.svg"))


def test_plots_are_reproducible_and_small(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        draw(LINES, tmp_path / folder / "roofline.svg")
    first = (tmp_path / "a/roofline.svg").read_bytes()
    assert first == (tmp_path / "b/roofline.svg").read_bytes()
    assert len(first) < 150_000


def test_dot_areas_are_proportional_to_shares() -> None:
    assert dot_size(0.4) == pytest.approx(2 * dot_size(0.1), rel=1e-2)
    assert dot_size(0.1) ** 2 == pytest.approx(2 * dot_size(0.05) ** 2, rel=1e-2)
    assert dot_size(0.0) == dot_size(1e-3) > 0


def test_a_plot_without_kernels_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"roofline.svg: no kernels to plot"):
        draw([LINES[2]], tmp_path / "roofline.svg")


def test_the_default_configs_of_one_version_are_the_same(benchmark: Benchmark) -> None:
    rows, _ = benchmark("kernels.defaults", str(HOME), "--threads", "1", "--kinds", "depthwise 5x5")
    labels = {row["layer"] for row in rows}
    assert len(rows) == 3 and {"conv2d 240->240 k5x5 s1 g240 28x28", "conv2d 960->960 k5x5 s1 g960 7x7"} <= labels
    for row in rows:
        assert row["same_config"] == "True"
        assert float(row["ratio_q1"]) <= float(row["ratio"]) <= float(row["ratio_q3"])
