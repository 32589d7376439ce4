"""The output of `anole doctor` on this machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anole.targets import get_device
from anole.targets.cpu.settings import describe_cpu

from ..terminal import anole


def doctor() -> dict[str, dict[str, str]]:
    """Return the facts of each group, by name."""
    outcome = anole("doctor")
    assert outcome.exit_code == 0, outcome.output
    groups: dict[str, dict[str, str]] = {}
    for line in outcome.output.splitlines():
        if not line.startswith(" "):
            facts = groups.setdefault(line, {})
        else:
            name, fact = re.split(r"\s{2,}", line.strip(), maxsplit=1)
            facts[name] = fact
    return groups


def test_the_report_names_the_machine_and_its_measured_peak() -> None:
    groups, description = doctor(), describe_cpu()
    assert list(groups) == ["machine", "software", "cpu", "cuda"]
    assert description["mcpu"] in groups["cpu"]["compiled for"]
    assert description["model"] in groups["machine"]["CPU"]
    peaks = [fact for name, fact in groups["cpu"].items() if re.fullmatch(r"peak, \d+ threads?", name)]
    assert len(peaks) == len({1, description["threads"]})
    for peak in peaks:
        rates = [re.fullmatch(r"([\d.,]+) GFLOP/s of (\w+)( multiply-adds)?", rate) for rate in peak.split("; ")]
        assert all(rate and float(rate[1].replace(",", "")) > 1 for rate in rates)
        assert tuple(rate[2] for rate in rates if rate) == get_device(description).dtypes
    assert "MISSING" not in str(groups) and groups["software"]["apache-tvm"].startswith("0.27")
    assert groups["cuda"]["CUDA compilers"] and groups["cuda"]["GPU"]


def test_a_missing_tool_is_reported_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from anole.report.doctor import tools

    monkeypatch.setenv("PATH", str(tmp_path))
    assert tools() == {
        "C compiler": "MISSING: found neither `cc` nor `gcc` nor `clang` on PATH; a C compiler is required to build "
        "anything: install one, or put it on PATH",
        "linker": "MISSING: found neither `ld` nor `cc` on PATH; a linker is required to build anything: install "
        "binutils or a C compiler, or put it on PATH",
    }
