"""Kernels that take a considerable share of the time far from the roofline are named."""

from __future__ import annotations

from pathlib import Path

from anole.evaluate.roofline import Row
from anole.evaluate.slow_kernels import slow_kernels

from ..tiny_builds import run_python

# As if the machine were a million times faster than it is, and every kernel long: then all are far from the roof.
SCRIPT = """
import logging, sys
from pathlib import Path
from anole.evaluate import slow_kernels
from anole.evaluate.roofline import Roofline

slow_kernels.measure_roofline = lambda target: Roofline(1e18, 1e18)
slow_kernels._LEAST_S = 0.0
logging.basicConfig(stream=sys.stdout)
slow_kernels.warn_of_slow_kernels(Path("net"), 0.0)
"""


def row(kernel: str, share: float, roofline: float, seconds: float = 1e-3, calls: int = 1) -> Row:
    return Row(kernel, ("layer",), calls, seconds, share, 10, 10, roofline)


def test_which_kernels_are_slow() -> None:
    rows = [
        row("slow", 0.06, 0.29),
        row("slowest", 0.5, 0.05),
        row("fast", 0.4, 0.31),
        row("rare", 0.04, 0.01),
        row("short", 0.2, 0.01, seconds=5e-5, calls=10),
    ]
    assert [each.kernel for each in slow_kernels(rows)] == ["slowest", "slow"]


def test_slow_kernels_are_logged_with_their_layers(tiny_project: Path) -> None:
    lines = run_python(tiny_project, "-c", SCRIPT).stdout.splitlines()
    shares = [int(line.split(" takes ")[1].split()[0]) for line in lines]
    assert shares and shares == sorted(shares, reverse=True) and shares[-1] >= 5
    assert all("net: kernel " in line and "at 0 % of its roof (" in line for line in lines)
    assert any(line.endswith(": stem.0") for line in lines)
