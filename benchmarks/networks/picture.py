"""Plot the speedups of compiled networks over other engines at batch 1, as SVG with a row for each network.

python -m benchmarks.networks.picture docs/results/data/networks.svg < docs/results/data/networks.csv
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from benchmarks.common.arguments import make_parser
from benchmarks.networks.report import RIVALS, Network, networks_of

MARKS = {
    "onnxruntime": ("o", "#56b4e9"),
    "openvino": ("s", "#0072b2"),
    "openvino.default": ("D", "#e69f00"),
    "ncnn": ("v", "#009e73"),
    "torch.compile": ("^", "#d55e00"),
}
"""The plotted baselines, with the shapes and colors of their marks, from Okabe and Ito's color-blind safe palette."""


def main() -> None:
    """Plot the CSV on standard input to the given file."""
    parser = make_parser(__doc__)
    parser.add_argument("path", type=Path)
    path = parser.parse_args().path
    draw(networks_of(csv.DictReader(sys.stdin)), path)


def draw(networks: Sequence[Network], path: Path) -> None:
    """Plot the networks at batch 1, the first at the top."""
    networks = [network for network in networks if network.batch == 1]
    # A fixed salt and no date make the output reproducible.
    with matplotlib.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(8, 1 + 0.3 * len(networks)), layout="constrained")
        axes = figure.subplots()
        for baseline, (mark, color) in MARKS.items():
            speedups = [(network.speedup(baseline), row) for row, network in enumerate(networks)]
            points = [(speedup, row) for speedup, row in speedups if speedup is not None]
            if points:
                axes.scatter(*zip(*points, strict=True), marker=mark, color=color, label=RIVALS[baseline], zorder=2)
        axes.axvline(1.0, color="black", linewidth=1)
        axes.set_xlim(left=0)
        axes.set_yticks(range(len(networks)), [network.title for network in networks])
        axes.invert_yaxis()
        axes.set_xlabel("latency of the other engine / latency of Anole (right of 1 Anole is faster)")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
