"""The zoo's bookkeeping: what is continued, what limits end, and one network that goes all the way."""

from __future__ import annotations

import csv
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

import zoo
from zoo import COLUMNS, DONE, append, chosen, read, run_apart, shown, watch, write
from zoo_networks import zoo as networks

MUCH_S, MUCH_GB = 600.0, 1000.0


def line(network: str, stage: str = DONE, **others: Any) -> dict[str, Any]:
    return {"network": network, "stage": stage, **others}


def test_what_is_added_is_read(tmp_path: Path) -> None:
    path = tmp_path / "results/zoo.csv"
    assert read(path) == []
    write(path, [])
    append(path, line("one", speedup=1.23456, reason='says "no, no"'))
    append(path, line("two", "extract"))
    rows = read(path)
    assert [row["network"] for row in rows] == ["one", "two"]
    assert (rows[0]["speedup"], rows[0]["reason"], tuple(rows[0])) == ("1.235", 'says "no, no"', COLUMNS)


def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "zoo.csv"
    write(path, [])
    append(path, line("one"))
    append(path, line("two"))
    whole = path.read_bytes()
    for length in range(len(whole) - len("two") - len(COLUMNS), len(whole)):
        path.write_bytes(whole[:length])
        assert [row["network"] for row in read(path)] == ["one"]


def test_names_begin_with_a_word() -> None:
    assert chosen(["unet", "timm_a", "timm_b"], "timm_") == ["timm_a", "timm_b"]
    assert chosen(["unet", "timm_a"], "") == ["unet", "timm_a"]
    with pytest.raises(SystemExit, match="no network begins with vnet"):
        chosen(["unet"], "unet,vnet")


def test_a_reason_fits_a_line() -> None:
    assert shown("one\n  two") == "one two"
    assert len(shown("word " * 1000)) == 300


def code(path: Path, text: str, seconds: float = MUCH_S, gigabytes: float = MUCH_GB) -> str | None:
    """Runs Python under the limits, and returns what ended it."""
    with (path / "errors.txt").open("wb") as errors:
        return watch([sys.executable, "-c", text], path, os.environ, errors, seconds, gigabytes)


def test_a_process_that_ends_has_no_reason(tmp_path: Path) -> None:
    assert code(tmp_path, "print('well')") is None
    assert (tmp_path / "errors.txt").read_text() == "well\n"


def test_a_limit_of_time_ends_all_processes(tmp_path: Path) -> None:
    start = "p = subprocess.Popen(['sleep', '600'], start_new_session=True); print(p.pid, flush=True); p.wait()"
    assert code(tmp_path, f"import subprocess; {start}", seconds=1.5) == "it took more than 1.5 s"
    pid = int((tmp_path / "errors.txt").read_text())
    deadline_s = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_a_limit_of_memory_and_a_crash_are_named(tmp_path: Path) -> None:
    text = "import time; kept = bytearray(300_000_000); kept[::4096] = b'x' * len(kept[::4096]); time.sleep(600)"
    assert code(tmp_path, text, gigabytes=0.2) == "it took more than 0.2 GB of memory"
    assert code(tmp_path, "import os; os.abort()") == "it was ended by SIGABRT"


def test_what_was_reported_before_the_end_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "zoo.py"
    script.write_text(
        """import pathlib, sys
pathlib.Path("report.json").write_text('{"stage": "compile", "extracted": 1}')
sys.exit("the last words")
"""
    )
    monkeypatch.setattr(zoo, "__file__", str(script))
    found = run_apart("any", [], MUCH_S, MUCH_GB)
    assert found == {"stage": "compile", "extracted": 1, "reason": "the last words"}


def test_done_networks_are_not_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, run = tmp_path / "zoo.csv", []

    def work(name: str, options: Sequence[str], *limits: float) -> dict[str, Any]:
        run.append(name)
        return {"stage": "extract", "reason": "no"} if name == "gru" else {"stage": DONE, "speedup": 2.0}

    monkeypatch.setattr(zoo, "run_apart", work)

    def sweep(*options: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["zoo.py", str(path), "--networks", "gru,unet", *options])
        run.clear()
        zoo.main()
        return list(run)

    assert sweep() == ["unet", "gru"]
    assert sweep() == []
    assert sweep("--again") == ["gru"]
    assert sorted(row["network"] for row in read(path)) == ["gru", "unet"]
    assert "gru: extract: no" in capsys.readouterr().out


def test_the_zoo_has_the_kinds_that_need_no_other_package() -> None:
    names = set(networks())
    assert {"unet", "esrgan", "wavenet", "lstm", "gru", "torchvision_s3d", "torchvision_fcn_resnet50"} <= names
    with Path(zoo.__file__).with_name("tables").joinpath("timm_families.csv").open() as file:
        families = list(csv.DictReader(file))
    assert len(families) >= 90 and all(int(family["size"]) > 0 for family in families)


@pytest.mark.slow
def test_a_network_goes_all_the_way(tmp_path: Path, benchmark: Callable[..., Any]) -> None:
    path = tmp_path / "zoo.csv"
    benchmark("zoo", str(path), "--networks", "wavenet", "--rounds", "3", "--mutate")
    (row,) = read(path)
    assert (row["stage"], row["extracted"], row["compiled"], row["right"]) == (DONE, "1", "1", "1")
    assert float(row["variation_error"]) < 1e-4 and float(row["output_variation"]) > 0.01
    assert float(row["speedup_q1"]) <= float(row["speedup"]) <= float(row["speedup_q3"])
    assert row["uncaught"] == row["reason"] == "" and "of the roof" in row["slowest"]
