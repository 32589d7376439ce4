"""The doctor's report on this very machine."""

from __future__ import annotations

import re

from anole.report.doctor import report
from anole.targets.cpu.settings import describe_cpu


def test_the_report_names_the_machine_and_its_measured_peak() -> None:
    text = report()
    description = describe_cpu()
    assert description["mcpu"] in text and description["model"] in text
    peaks = [float(peak) for peak in re.findall(r"^peak, \d+ threads?\s+(\d+) GFLOP/s", text, re.MULTILINE)]
    assert len(peaks) == len({1, description["threads"]}) and min(peaks) > 1
    assert "MISSING" not in text and "apache-tvm 0.27" in text
    assert re.search(r"^CUDA compilers\s+\S", text, re.MULTILINE) and re.search(r"^GPU\s+\S", text, re.MULTILINE)
