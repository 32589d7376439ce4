"""The report of the zoo counts what came how far, and names the slowest networks and every refusal."""

from __future__ import annotations

import csv
import io
import sys

import pytest

from benchmarks.zoo import report as zoo_report
from benchmarks.zoo.sweep import COLUMNS

DONE = {"extracted": 1, "compiled": 1, "right": 1, "stage": "done", "extract_s": 4, "compile_s": 2}
ROWS = [
    {"network": "timm_fast", "source": "torch", "speedup": 4, "speedup_q1": 4, "speedup_q3": 5, **DONE},
    {"network": "timm_slow", "source": "torch", "speedup": 0.25, "speedup_q1": 0, "speedup_q3": 1, **DONE},
    {"network": "a_file", "source": "a.onnx", "stage": "compile", "extracted": 1, "reason": "no such operator"},
    {"network": "unet", "source": "torch", "uncaught": "head:1e-9", **DONE},
]


def test_it_counts_and_names(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows({**row, "slowest": "kernel 9%; other 1%"} for row in ROWS)
    text.seek(0)
    monkeypatch.setattr(sys, "stdin", text)
    zoo_report.main()
    lines = capsys.readouterr().out.splitlines()
    assert "| timm | 2 | 2 | 2 | 2 | 1.00x | 0.25x to 4.00x | 1 of 2 | 0 |" in lines
    assert "| ONNX files of packages | 1 | 1 | 0 | 0 | | | 0 of 0 | 0 |" in lines
    assert "| written for the zoo | 1 | 1 | 1 | 1 | | | 0 of 0 | 1 |" in lines
    assert [line.split(" | ")[0] for line in lines if line.endswith("| kernel 9% |")] == ["| timm_slow", "| timm_fast"]
    assert "| a_file | compile | no such operator |" in lines
    assert "| extract | 4.0 | 4.0 | 4 (unet) |" in lines
