"""Prints tables of searches that learned on other networks' layers, of which docs/results/search.md quotes figures.

    python -m benchmarks.search.learned docs/results/data/search/pretrained.csv

Learning across tasks was tried and dropped, and its code with it: commit 9804322 has the experiment. A figure is the
cost of the best config over that of the optimum: the geometric mean over layers and seeds, with its 95 % interval. A
search that has found nothing that works counts as `_NOTHING` times the optimum.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.common.arguments import described
from benchmarks.common.rows import Row, head, line, read_rows
from benchmarks.search.evidence import Estimate, Rows, mean, ratio

_NOTHING = 100.0
CHECKPOINTS = (1, 8, 16, 64)
"""Trials after which the gap is noted; the first trial is what would be taken without measuring."""

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
    parser = described(__doc__)
    parser.add_argument("file", type=Path)
    rows = read_rows(parser.parse_args().file)
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        print(f"\n{kind}\n", *head("search", *map(str, CHECKPOINTS), "failed of 64", "n"), sep="\n")
        for variant in dict.fromkeys(row["variant"] for row in own):
            its = [row for row in own if row["variant"] == variant]
            print(line(variant, *figures(its), f"{np.mean([int(row['failed']) for row in its]):.0f}", len(its)))
        print("", *head("over", "under", *map(str, CHECKPOINTS)), sep="\n")
        for over, under in PAIRS:
            found = [ratio(own, over, under, lambda row, n=n: cost(row, n)) for n in CHECKPOINTS]
            if all(found):
                print(line(over, under, *map(_text, found)))


def figures(rows: Rows) -> list[str]:
    """Returns the mean cost over the optimum after each number of trials."""
    costs = [{(row["layer"], row["seed"]): np.log(cost(row, n)) for row in rows} for n in CHECKPOINTS]
    return [_text(mean(each, np.exp)) for each in costs]


def cost(row: Row, n_trials: int) -> float:
    """Returns the cost over the optimum after a number of trials."""
    return min(1 + float(row[f"gap_at_{n_trials}"]), _NOTHING)


def _text(found: Estimate | None) -> str:
    assert found is not None
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


if __name__ == "__main__":
    main()
