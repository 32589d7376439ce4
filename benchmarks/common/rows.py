"""Functions that read, print, round and summarize rows of results, and format them as Markdown tables."""

from __future__ import annotations

import csv
import lzma
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np

Row = Mapping[str, str]
"""The cells of a row, by column."""


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file, or none if it does not exist."""
    if not path.exists():
        return []
    with open_csv(path) as file:
        return list(csv.DictReader(file))


def open_csv(path: Path, mode: str = "rt") -> TextIO:
    """Open a CSV file, which is compressed if its name ends with ``.xz``."""
    is_compressed = path.suffix == ".xz"
    return cast(TextIO, (lzma.open if is_compressed else open)(path, mode, encoding="utf-8", newline=""))


def print_rows(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Print rows as CSV, flushing each as soon as it is known."""
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(row)
        sys.stdout.flush()


def round_row(row: Mapping[str, object]) -> dict[str, object]:
    """Return a row with its floats formatted with four significant digits."""
    return {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in row.items()}


def quartiles(name: str, values: Any, unit: str = "") -> dict[str, float]:
    """Return the median and the quartiles of values, as the columns ``name``, ``name_q1`` and ``name_q3``."""
    low, middle, high = map(float, np.quantile(values, (0.25, 0.5, 0.75)))
    return {f"{name}{unit}": middle, f"{name}_q1{unit}": low, f"{name}_q3{unit}": high}


def head(*titles: str) -> tuple[str, str]:
    """Return the header lines of a Markdown table."""
    return line(*titles), "|" + "---|" * len(titles)


def line(*cells: object) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def times(ratio: float | None) -> str:
    """Return a formatted speedup, such as ``1.3x``; empty if it is unknown."""
    return "" if ratio is None else f"{ratio:.2f}x"
