"""Linking: every failure is a MachineError that quotes the linker's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from anole.errors import MachineError
from anole.targets.shared.kernel import link


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("#!/bin/sh\necho first >&2; echo bad plugin >&2; exit 3\n", r"ld failed \(exit 3\), .*: first; bad plugin$"),
        ("#!/bin/sh\nexit 1\n", r"ld failed \(exit 1\), so nothing can be built: no output$"),
        ("#!/bin/sh\nkill -9 $$\n", r"ld failed \(killed by SIGKILL\)"),
        ("no program", r"ld cannot be started: Exec format error; nothing can be built"),
        (None, r"found neither `ld` nor `cc` on PATH; .*: install binutils"),
    ],
    ids=["output", "no output", "killed", "not executable", "missing"],
)
def test_a_failure_of_the_linker_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None, message: str
) -> None:
    if program is not None:
        (tmp_path / "ld").write_text(program)
        (tmp_path / "ld").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match=message):
        link("out.so", ["in.o"])
