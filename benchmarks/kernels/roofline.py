"""Compare every kernel of compiled networks with the machine's roofline, as CSV and as SVG.

    python -m benchmarks.kernels.roofline kernels builds/* > docs/results/data/kernels.csv
    python -m benchmarks.kernels.roofline picture docs/results/data/roofline.svg < docs/results/data/kernels.csv

Each build is profiled in a separate process, which also measures the peak and the bandwidth. Operations are counted as
for direct convolution, so Winograd convolutions may exceed the roof, as may kernels with cached data.
"""

from __future__ import annotations

import csv
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from anole.documents.build import BuiltTask, read_build
from anole.errors import BuildError
from benchmarks.common.arguments import make_parser
from benchmarks.common.builds import rows_of_builds
from benchmarks.common.rows import print_rows

COLUMNS = (
    *("network", "target", "batch", "threads", "kernel", "kind", "task", "algorithm", "layers", "calls"),
    *("time_ms", "share", "gflop", "size_bytes", "gflops", "gb_per_s", "flop_per_byte", "roofline"),
    *("peak_gflops", "copy_gb_per_s"),
)
DIRECT, WINOGRAD, DEPTHWISE, GROUPED = "direct convolution", "Winograd", "depthwise", "grouped"
# The color-blind safe palette of Okabe and Ito.
KINDS = {
    DIRECT: "#0072b2",
    WINOGRAD: "#d55e00",
    DEPTHWISE: "#009e73",
    GROUPED: "#56b4e9",
    "dense": "#e69f00",
    "batch_matmul": "#cc79a7",
    "attention": "#f0e442",
}
"""The kinds of kernels with an anchor operator, and their colors; plots show only these."""
OTHER = "other"
"""The kind of kernels without an operation count."""

MAX_AREA = 700.0
"""Area, in square points, of the dot of a kernel that would take all of its network's time."""
LEGEND_SHARES = (0.01, 0.1, 0.5)

Row = Mapping[str, Any]
Dots = dict[tuple[str, float], tuple[list[float], list[float]]]
"""Operations per byte and GFLOP/s of dots, by kind and diameter."""


def main() -> None:
    """Print a row for each kernel, or plot such rows."""
    parser = make_parser(__doc__)
    commands = parser.add_subparsers(required=True, dest="part")
    kernels = commands.add_parser("kernels")
    kernels.add_argument("builds", nargs="+", type=Path)
    kernels.add_argument("--seconds", type=float, default=5.0, help="measuring time per build")
    commands.add_parser("picture").add_argument("path", type=Path)
    args = parser.parse_args()
    if args.part == "picture":
        draw(list(csv.DictReader(sys.stdin)), args.path)
    else:
        print_rows(COLUMNS, rows_of_builds(args.builds, partial(kernel_rows, seconds=args.seconds), "profiled"))


def kernel_rows(folder: Path, seconds: float) -> Iterator[Row]:
    """Yield a row for each kernel of a build."""
    build = read_build(folder)
    command = [sys.executable, "-m", "anole", "profile", str(folder), "--json", "--seconds", str(seconds)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise BuildError((result.stderr.strip().splitlines() or ["no reason was given"])[-1])
    profile = json.loads(result.stdout)
    tasks = {task.key: task for task in build.tasks}
    by_kernel = {kernel.name: tasks.get(kernel.task or "") for kernel in build.kernels or ()}
    common = {
        **{"network": build.model, "target": build.target, "batch": build.inputs[0].shape[0]},
        **{"threads": profile["threads"], "peak_gflops": f"{profile['peak']['flop_per_s'] / 1e9:.1f}"},
        **{"copy_gb_per_s": f"{profile['peak']['bytes_per_s'] / 1e9:.2f}"},
    }
    for row in profile["rows"]:
        yield {**common, **_kernel_row(row, by_kernel[row["kernel"]])}


def _kernel_row(row: Row, task: BuiltTask | None) -> Row:
    """Return the row of a kernel, summed over its calls, from its row in a profile and its task."""
    flop, size_bytes, seconds = row["flop"], row["size_bytes"], row["seconds"]
    label, algorithm = (task.label, (task.config or {}).get("algorithm", "")) if task else ("", "")
    return {
        **{"kernel": row["kernel"], "kind": kind_of(label, algorithm), "task": label, "algorithm": algorithm},
        **{"layers": " ".join(row["layers"]), "calls": row["calls"], "size_bytes": size_bytes},
        **{"time_ms": f"{1e3 * seconds:.5g}", "share": f"{row['share']:.4g}", "roofline": f"{row['roofline']:.4g}"},
        **{"gflop": f"{flop / 1e9:.5g}", "gflops": f"{flop / seconds / 1e9:.4g}"},
        **{"gb_per_s": f"{size_bytes / seconds / 1e9:.4g}", "flop_per_byte": f"{flop / size_bytes:.4g}"},
    }


def kind_of(label: str, algorithm: str) -> str:
    """Return the kind of a kernel from its label, such as ``conv2d 32->32 k3x3 s1 g32 56x56``; without one, `OTHER`."""
    operator, *words = label.split() or [OTHER]
    if operator != "conv2d":
        return operator
    groups = next((int(word[1:]) for word in words if word.startswith("g")), 1)
    if groups == 1:
        return WINOGRAD if algorithm == "winograd" else DIRECT
    return DEPTHWISE if words[0].startswith(f"{groups}->") else GROUPED


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw a panel for each batch size: operations per second against operations per byte, below the roofs.

    Raises:
        SystemExit: no row has a kind that `KINDS` lists.
    """
    import matplotlib
    from matplotlib.figure import Figure

    plotted = [row for row in rows if row["kind"] in KINDS]
    if not plotted:
        raise SystemExit(f"{path}: no kernels to plot; kinds that are plotted: {', '.join(KINDS)}")
    batches = sorted({int(row["batch"]) for row in plotted})
    # A fixed salt and no date make the output reproducible.
    with matplotlib.rc_context({"svg.hashsalt": path.stem, "font.size": 9}):
        figure = Figure(figsize=(1 + 4.6 * len(batches), 5.4), layout="constrained")
        (grid,) = figure.subplots(1, len(batches), sharex=True, sharey=True, squeeze=False)
        for axes, batch in zip(grid, batches, strict=True):
            _draw_panel(axes, batch, [row for row in plotted if int(row["batch"]) == batch])
        figure.supxlabel("floating-point operations per byte, every operand counted once", fontsize=9)
        figure.supylabel("GFLOP/s, counted as direct convolution's", fontsize=9)
        n_columns = 4 if len(batches) > 1 else 2
        figure.legend(handles=_legend(), ncols=n_columns, loc="outside upper center", frameon=False, handlelength=2.5)
        figure.savefig(path, metadata={"Date": None})


def _draw_panel(axes: Any, batch: int, rows: Sequence[Row]) -> None:
    """Plot the kernels of all networks with one batch size; small dots on top of large ones."""
    roofs = sorted({(float(row["peak_gflops"]), float(row["copy_gb_per_s"])) for row in rows})
    # A margin around the dots and all ridge points keeps both roofs visible.
    reach = [float(row["flop_per_byte"]) for row in rows] + [peak / bandwidth for peak, bandwidth in roofs]
    x = np.geomspace(min(reach) / 2, max(reach) * 2, 200)
    for peak, bandwidth in roofs:
        axes.plot(x, np.minimum(peak, bandwidth * x), color="#bbbbbb", linewidth=0.6, zorder=1)
    peak, bandwidth = (statistics.median(column) for column in zip(*roofs, strict=True))
    roof_x = np.array([x[0], peak / bandwidth, x[-1]])
    axes.plot(roof_x, np.minimum(peak, bandwidth * roof_x), color="black", linewidth=1.4, zorder=2)
    for (kind, size), dots in _dots(rows).items():
        axes.plot(*dots, "o", markersize=size, color=KINDS[kind], alpha=0.6, markeredgewidth=0, zorder=3 + 1 / size)
    axes.set_title(f"batch {batch}: {peak:.0f} GFLOP/s and {bandwidth:.1f} GB/s", loc="left", fontsize=9)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _dots(rows: Sequence[Row]) -> Dots:
    """Return the positions of the dots of each kind and size."""
    dots: Dots = {}
    for row in rows:
        x, y = dots.setdefault((row["kind"], dot_size(float(row["share"]))), ([], []))
        x.append(float(row["flop_per_byte"]))
        y.append(float(row["gflops"]))
    return dots


def dot_size(share: float) -> float:
    """Return the diameter, in points, of a dot whose area is proportional to a share of the network's time.

    Areas are rounded to half powers of two to limit the number of sizes; all shares up to 0.1 % look the same.
    """
    area = MAX_AREA * 2 ** (round(2 * math.log2(max(share, 1e-3))) / 2)
    return round(2 * math.sqrt(area / math.pi), 2)


def _legend() -> list[Any]:
    """Return the legend entries for colors, sizes and lines, in columns of three or six."""
    from matplotlib.lines import Line2D

    def dot(color: str, size: float, label: str) -> Line2D:
        return Line2D([], [], marker="o", linestyle="", color=color, markersize=size, markeredgewidth=0, label=label)

    return [
        *(dot(color, 7, kind) for kind, color in KINDS.items()),
        *(dot("#999999", dot_size(share), f"{share:.0%} of a network's time") for share in LEGEND_SHARES),
        Line2D([], [], color="black", linewidth=1.4, label="roof, the median of all runs"),
        Line2D([], [], color="#bbbbbb", linewidth=0.6, label="roof of each run"),
    ]


if __name__ == "__main__":
    main()
