"""Plot searches of exact tables over their trials, as SVG: the best cost of each tuner relative to the optimum.

python -m benchmarks.search.picture docs/results/data/search/tables.csv.xz docs/results/data/search/searches.svg
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import geometric_mean

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.common.arguments import described
from benchmarks.common.rows import Row, read_rows
from benchmarks.search.exact import CHECKPOINTS

TUNERS = {
    "random": ("random", "#000000"),
    "SA+greedy": ("AutoTVM's parts", "#56b4e9"),
    "release": ("RELEASE", "#0072b2"),
    "chameleon": ("Chameleon", "#009e73"),
    "adatune": ("AdaTune", "#e69f00"),
    "dcoc": ("DCOC", "#cc79a7"),
    "anole cold": ("Anole, nothing recorded before", "#d55e00"),
}
"""The plotted variants, with titles and colors of Okabe and Ito."""

SPACES = ("constrained", "open")


def main() -> None:
    """Plot a file of runs."""
    parser = described(__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    draw(read_rows(given.runs), given.picture)


def draw(rows: Iterable[Row], path: Path) -> None:
    """Plot a panel for each kind of space, with a curve for each tuner that searched it."""
    runs: dict[tuple[str, str], list[Row]] = {(space, name): [] for space in SPACES for name in TUNERS}
    for row in rows:
        runs.get((row["space"], row["variant"]), []).append(row)
    # A fixed salt and no date make the output reproducible.
    with matplotlib.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(8, 3.4), layout="constrained")
        panels = figure.subplots(ncols=len(SPACES))
        curves: dict[str, Line2D] = {}
        for axes, space in zip(panels, SPACES, strict=True):
            for name, (title, color) in TUNERS.items():
                if curve := mean_ratios(runs[space, name]):
                    (curves[title],) = axes.plot(*zip(*curve, strict=True), marker=".", color=color)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xticks([16, 64, 256, 1024], ["16", "64", "256", "1024"])
            axes.set_yticks([1, 1.1, 1.5, 2, 4, 8], ["1", "1.1", "1.5", "2", "4", "8"], minor=False)
            axes.set_yticks([], minor=True)
            axes.set_xlabel("trials")
            axes.set_title(f"{space} spaces", fontsize=9)
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel("cycles of the best config / of the optimum")
        figure.legend(curves.values(), curves.keys(), frameon=False, ncols=4, loc="outside upper center")
        figure.savefig(path, metadata={"Date": None})


def mean_ratios(runs: Iterable[Row]) -> list[tuple[int, float]]:
    """Return the mean ratio of the best cost to the optimum, over layers and seeds, by the number of trials."""
    found = {n: [1 + float(run[f"gap_at_{n}"]) for run in runs if run[f"gap_at_{n}"]] for n in CHECKPOINTS}
    max_runs = max(map(len, found.values()))
    # A mean over fewer runs would be over other layers than the rest of the curve.
    return [(n, geometric_mean(ratios)) for n, ratios in found.items() if ratios and len(ratios) == max_runs]


if __name__ == "__main__":
    main()
