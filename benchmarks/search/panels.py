"""Draws small multiples of curves as SVG, with a panel for each layer and a colour for each tuner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from benchmarks.search.variants import VARIANTS

# Okabe and Ito's colours, which colour-blind people can distinguish, for the presets; the ablations are dashed.
COLOURS = ("#7f7f7f", "#000000", "#56b4e9", "#0072b2", "#e69f00", "#d55e00")


class Panels:
    """Draws lines into panels."""

    def __init__(self, axes: dict[str, Any], variants: Iterable[str]) -> None:
        self._axes = axes
        self._styles = {
            variant: {"color": COLOURS[number % len(COLOURS)], "linestyle": "-" if number < len(COLOURS) else "--"}
            for number, variant in enumerate(variants)
        }

    def line(self, panel: str, variant: str, x: Sequence[float], y: Sequence[float]) -> None:
        """Draws one tuner's curve."""
        self._axes[panel].plot(x, y, label=variant, linewidth=1.4, **self._styles[variant])

    def limit(self, low: float, high: float) -> None:
        """Limits the vertical axis of all panels."""
        for axes in self._axes.values():
            axes.set_ylim(low, high)


@contextmanager
def panels(
    names: Sequence[str], x_label: str, y_label: str, path: Path, variants: Iterable[str] = VARIANTS
) -> Iterator[Panels]:
    """Yields empty panels, four in a row, with a logarithmic horizontal axis, and writes them when the block ends."""
    n_columns = min(4, len(names))
    n_rows = -(-len(names) // n_columns)
    # A fixed salt and no date make the files of equal pictures equal.
    with matplotlib.rc_context({"svg.hashsalt": path.stem, "font.size": 9}):
        figure = Figure(figsize=(1 + 2.8 * n_columns, 1 + 2.3 * n_rows), layout="constrained")
        grid = figure.subplots(n_rows, n_columns, sharey=True, squeeze=False)
        axes = dict(zip(names, grid.flat, strict=False))
        yield Panels(axes, variants)
        for empty in list(grid.flat)[len(names) :]:
            empty.set_visible(False)
        handles: dict[str, Any] = {}
        for name, panel in axes.items():
            panel.set_title(name, loc="left", fontsize=9)
            panel.set_xscale("log", base=2)
            panel.xaxis.set_major_formatter("{x:g}")
            panel.grid(alpha=0.25)
            panel.spines[["top", "right"]].set_visible(False)
            handles |= {line.get_label(): line for line in panel.get_lines()}
        figure.supxlabel(x_label, fontsize=9)
        figure.supylabel(y_label, fontsize=9)
        n_across = min(6, 2 * n_columns, len(handles))
        figure.legend(handles.values(), handles.keys(), ncols=n_across, loc="outside upper center", frameon=False)
        figure.savefig(path, metadata={"Date": None})
