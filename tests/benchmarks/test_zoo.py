"""The zoo: resuming a sweep, one network through all stages, and the report."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.zoo import report
from benchmarks.zoo import sweep as zoo
from benchmarks.zoo.jobs import COLUMNS, DONE
from benchmarks.zoo.networks import FAMILIES
from benchmarks.zoo.networks import zoo as networks
from benchmarks.zoo.sweep import choose_networks, read, write

from .conftest import Benchmark


def line(network: str, stage: str = DONE, **columns: Any) -> dict[str, Any]:
    return {"network": network, "stage": stage, **columns}


def test_written_rows_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "results/zoo.csv"
    assert read(path) == []
    write(path, [line("one", speedup="1.235", reason='says "no, no"'), line("two", "extract")])
    rows = read(path)
    assert [row["network"] for row in rows] == ["one", "two"]
    assert (rows[0]["speedup"], rows[0]["reason"], tuple(rows[0])) == ("1.235", 'says "no, no"', COLUMNS)


def test_a_truncated_line_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "zoo.csv"
    write(path, [line("one"), line("two")])
    whole = path.read_bytes()
    for length in range(len(whole) - len("two") - len(COLUMNS), len(whole)):
        path.write_bytes(whole[:length])
        assert [row["network"] for row in read(path)] == ["one"]


def test_networks_are_chosen_by_prefix() -> None:
    assert choose_networks(["unet", "timm_a", "timm_b"], "timm_") == ["timm_a", "timm_b"]
    assert choose_networks(["unet", "timm_a"], "") == ["unet", "timm_a"]
    with pytest.raises(SystemExit, match="no network begins with vnet"):
        choose_networks(["unet"], "unet,vnet")


def test_done_networks_are_not_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, run = tmp_path / "zoo.csv", []

    def work(command: Sequence[str], _: object) -> dict[str, Any]:
        run.append(command[3])
        return {"stage": "extract", "reason": "no"} if command[3] == "gru" else {"stage": DONE, "speedup": 2.0}

    monkeypatch.setattr(zoo, "run_job", work)
    monkeypatch.setattr("signal.signal", lambda *_: None)

    def sweep(*options: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["", str(path), "--networks", "gru,unet", *options])
        run.clear()
        zoo.main()
        return list(run)

    assert sweep() == ["unet", "gru"]
    assert sweep() == []
    assert sweep("--again") == ["gru"]
    assert sweep("--codes", "abc") == ["unet", "gru"]
    assert sweep("--codes", read(path)[0]["code"]) == []
    assert sorted(row["network"] for row in read(path)) == ["gru", "unet"]
    assert "gru: extract: no" in capsys.readouterr().out


def test_the_zoo_has_the_kinds_that_need_no_other_package() -> None:
    names = set(networks())
    assert {"unet", "esrgan", "wavenet", "lstm", "gru", "torchvision_s3d", "torchvision_fcn_resnet50"} <= names
    with FAMILIES.open() as file:
        families = list(csv.DictReader(file))
    assert len(families) >= 90 and all(int(family["size"]) > 0 for family in families)


@pytest.mark.slow
def test_a_network_completes_all_stages(tmp_path: Path, benchmark: Benchmark) -> None:
    path = tmp_path / "zoo.csv"
    benchmark("zoo.sweep", str(path), "--networks", "wavenet", "--rounds", "3", "--mutate")
    (row,) = read(path)
    assert (row["stage"], row["extracted"], row["compiled"], row["right"]) == (DONE, "1", "1", "1")
    assert float(row["variation_error"]) < 1e-4 and float(row["output_variation"]) > 0.01
    assert float(row["speedup_q1"]) <= float(row["speedup"]) <= float(row["speedup_q3"])
    assert row["uncaught"] == row["reason"] == "" and "of the roof" in row["slowest"]


WHOLE = {"extracted": 1, "compiled": 1, "right": 1, "stage": "done", "extract_s": 4, "compile_s": 2}
ROWS = [
    {"network": "timm_fast", "source": "torch", "speedup": 4, "speedup_q1": 4, "speedup_q3": 5, **WHOLE},
    {"network": "timm_slow", "source": "torch", "speedup": 0.25, "speedup_q1": 0, "speedup_q3": 1, **WHOLE},
    {"network": "a_file", "source": "a.onnx", "stage": "compile", "extracted": 1, "reason": "no such operator"},
    {"network": "unet", "source": "torch", "uncaught": "head:1e-9", **WHOLE},
]


def test_the_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows({**row, "slowest": "kernel 9%; other 1%"} for row in ROWS)
    text.seek(0)
    monkeypatch.setattr(sys, "stdin", text)
    monkeypatch.setattr(sys, "argv", [""])
    report.main()
    lines = capsys.readouterr().out.splitlines()
    assert "| timm | 2 | 2 | 2 | 2 | 1.00x | 0.25x to 4.00x | 1 of 2 | 0 |" in lines
    assert "| ONNX files of packages | 1 | 1 | 0 | 0 |  |  | 0 of 0 | 0 |" in lines
    assert "| written for the zoo | 1 | 1 | 1 | 1 |  |  | 0 of 0 | 1 |" in lines
    assert [line.split(" | ")[0] for line in lines if line.endswith("| kernel 9% |")] == ["| timm_slow", "| timm_fast"]
    assert "| a_file | compile | no such operator |" in lines
    assert "| extract | 4.0 | 4.0 | 4 (unet) |" in lines
