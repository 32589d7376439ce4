"""What this machine's processor is as a target."""

from __future__ import annotations

import pytest

from anole.errors import TargetError
from anole.host.machine import available_cores
from anole.host.processor import known_processors, processor
from anole.targets.cpu import settings
from anole.targets.cpu.settings import describe_cpu

HASWELL = """vendor_id: GenuineIntel
cpu family: 6
model: 63
model name: Some CPU: @ 3 GHz
flags: fpu cx16 popcnt sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma movbe
"""


def test_this_machine_describes_itself_in_plain_values() -> None:
    description = describe_cpu()
    assert description["kind"] == "cpu"
    assert description["mcpu"] in known_processors()
    assert description["threads"] == available_cores() >= 1
    assert all(isinstance(value, (str, int, list)) for value in description.values())
    assert description == describe_cpu()


def test_settings_win_over_what_is_detected() -> None:
    generic = known_processors()[3] if known_processors()[0] == "x86-64-v4" else "generic"
    assert describe_cpu(mcpu=generic, threads=1) | {"model": "", "features": []} == {
        "kind": "cpu",
        "mcpu": generic,
        "model": "",
        "features": [],
        "threads": 1,
    }


def test_what_the_machine_cannot_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = processor(HASWELL, "x86_64")
    monkeypatch.setattr(settings, "processor", lambda: plain)
    with pytest.raises(TargetError, match=r"mcpu x86-64-v4 needs avx512bw, .* Some CPU: @ 3 GHz lacks"):
        describe_cpu(mcpu="x86-64-v4")
    with pytest.raises(TargetError, match=r"found threads: 100000; this process may use \d+ processors"):
        describe_cpu(threads=100_000)
