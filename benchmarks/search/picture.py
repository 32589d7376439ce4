"""Plot searches of held-out tables over their trials, as SVG: the best cost of each tuner relative to the optimum.

python -m benchmarks.search.picture docs/results/data/search/tables.csv.xz docs/results/data/search/searches.svg
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from anole.bench.picture import Point, draw, points_of
from benchmarks.common.arguments import make_parser
from benchmarks.common.rows import Row, read_rows
from benchmarks.search.exact import CHECKPOINTS, held_out

TUNERS = {
    **{"random": "random", "anole cold": "Anole, nothing recorded before", "SA+greedy": "AutoTVM's parts"},
    **{"release": "RELEASE", "chameleon": "Chameleon", "adatune": "AdaTune", "dcoc": "DCOC"},
}
"""The plotted variants, with their titles."""

SPACES = ("constrained", "open")


def main() -> None:
    """Plot a file of runs."""
    parser = make_parser(__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    draw(points(held_out(read_rows(given.runs))), given.picture)


def points(rows: Iterable[Row]) -> list[Point]:
    """Return a panel of curves for each kind of space; after the end of a run, its best config stays."""
    runs: dict[tuple[str, str], list[list[float]]] = {(space, name): [] for space in SPACES for name in TUNERS}
    for row in rows:
        if (key := (row["space"], row["variant"])) in runs:
            runs[key].append([1 + float(row[f"gap_at_{n}"] or row["gap_at_end"]) for n in CHECKPOINTS])
    curves = [(space, TUNERS[name], ratios) for (space, name), ratios in runs.items() if ratios]
    return [point for *titles, ratios in curves for point in points_of(*titles, CHECKPOINTS, np.array(ratios))]


if __name__ == "__main__":
    main()
