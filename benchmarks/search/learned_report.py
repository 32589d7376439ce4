"""Prints tables of the runs of `search_pretrained`, of which docs/results/search.md quotes some figures.

    python -m benchmarks.search.learned_report docs/results/data/search/pretrained.csv

A figure is the cost of the best config over that of the optimum: the geometric mean over layers and seeds, with its
95 % interval. A search that has found nothing that works counts as `_NOTHING` times the optimum.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.search.experiment import read_rows
from benchmarks.search.intervals import Estimate, Rows, mean, ratio
from benchmarks.search.learned import CHECKPOINTS, VARIANTS

_NOTHING = 100.0

PAIRS = (
    ("pretrained on merit", "merit"),
    ("pretrained on merit", "merit as margin"),
    ("pretrained on wrong merit", "wrong merit as margin"),
    ("merit as margin", "merit"),
    ("pretrained", "warm start"),
    ("pretrained", "pretrained fixed"),
    ("pretrained", "merit"),
    ("policy", "PPO"),
    ("policy", "warm start"),
    ("policy and pretrained", "pretrained"),
)
"""What is compared run by run."""


def main() -> None:
    """Prints a table of figures and one of pairs for each kind of space."""
    rows = read_rows(Path(sys.argv[1]))
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        print(f"\n{kind}\n\n| search | {' | '.join(map(str, CHECKPOINTS))} | failed of 64 | n |\n|---|{'---|' * 6}")
        for variant in VARIANTS:
            if its := [row for row in own if row["variant"] == variant]:
                failed = np.mean([int(row["failed"]) for row in its])
                print(f"| {variant} | {' | '.join(figures(its))} | {failed:.0f} | {len(its)} |")
        print(f"\n| over | under | {' | '.join(map(str, CHECKPOINTS))} |\n|---|---|{'---|' * 4}")
        for over, under in PAIRS:
            found = [ratio(own, over, under, lambda row, n=n: cost(row, n)) for n in CHECKPOINTS]
            if all(found):
                print(f"| {over} | {under} | {' | '.join(map(_text, found))} |")


def figures(rows: Rows) -> list[str]:
    """Returns the mean cost over the optimum after each number of trials."""
    costs = [{(row["layer"], row["seed"]): np.log(cost(row, n)) for row in rows} for n in CHECKPOINTS]
    return [_text(mean(each, np.exp)) for each in costs]


def cost(row: Mapping[str, str], n_trials: int) -> float:
    """Returns the cost over the optimum after a number of trials."""
    return min(1 + float(row[f"gap_at_{n_trials}"]), _NOTHING)


def _text(found: Estimate | None) -> str:
    assert found is not None
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


if __name__ == "__main__":
    main()
