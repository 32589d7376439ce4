"""The memory's bandwidth is that of pages that are there."""

from __future__ import annotations

import time

import pytest

from anole.targets.cpu.device.peak import CopyKernel
from anole.targets.cpu.settings import describe_cpu


def test_the_first_copy_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = CopyKernel(describe_cpu())
    lasts_s = iter([0.5])
    monkeypatch.setattr(copy, "_kernel", lambda *_: time.sleep(next(lasts_s, 0.0)))
    assert copy.bytes_per_s(seconds=0.0) > 2 * copy.size_bytes / 0.5
