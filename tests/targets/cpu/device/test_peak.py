"""The memory's bandwidth is that of pages that are there."""

from __future__ import annotations

import time

import pytest

from anole.targets.cpu.device import peak
from anole.targets.cpu.settings import describe_cpu


def test_the_first_copy_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    lasts_s = iter([0.5])
    monkeypatch.setattr(peak, "load", lambda *_: lambda *_: time.sleep(next(lasts_s, 0.0)))
    # 128 MiB are read and written.
    assert peak.copy_bytes_per_s(describe_cpu(), seconds=0.0) > 2 * (1 << 27) / 0.5
