"""Curves: geometric means with intervals, and their picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anole.bench.picture import draw, points_of, points_of_runs


def test_a_curve_is_a_geometric_mean_with_its_interval() -> None:
    ratios = np.array([[4.0, np.inf, 1.0], [1.0, 2.0, 1.0]])
    first, last = points_of("open", "any", [1, 2, 4], ratios)
    logs = np.log([4.0, 1.0])
    error = 1.96 * logs.std(ddof=1) / 2**0.5
    assert first["trials"] == 1 and first["ratio"] == pytest.approx(2.0)
    assert (first["low"], first["high"]) == (1.0, pytest.approx(np.exp(logs.mean() + error)))
    assert (last["trials"], last["ratio"], last["low"], last["high"]) == (4, 1.0, 1.0, 1.0)


def test_runs_become_curves_by_family_and_a_picture(tmp_path: Path) -> None:
    rows = [
        {"problem": f"{family}/{layer}", "optimizer": name, "trials": "8", "curve": curve}
        for family, layer, name, curve in (
            ("vta", "a", "anole", "1:4.0 3:1.0"),
            ("vta", "b", "anole", "1:4.0"),
            ("cpu", "a", "smac:Any", "1:2.0"),
        )
    ]
    points = points_of_runs(rows)
    ratios = {(each["panel"], each["title"], each["trials"]): each["ratio"] for each in points}
    assert [ratios["vta", "anole", n] for n in (1, 2, 3, 8)] == pytest.approx([4, 4, 2, 2])
    assert ratios["cpu", "smac:Any", 8] == 2.0
    draw(points, tmp_path / "runs.svg")
    shown = (tmp_path / "runs.svg").read_text()
    assert all(f">{text}</text>" in shown for text in ("vta", "cpu", "anole", "smac:Any", "trials"))
    draw(points, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == shown
