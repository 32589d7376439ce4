"""Linking: every failure is a MachineError that quotes the linker's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from anole.errors import MachineError
from anole.targets.shared.kernel import link


def linker(folder: Path, script: str) -> None:
    (folder / "ld").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "ld").chmod(0o755)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo first >&2; echo bad plugin >&2; exit 3", r"ld failed \(exit 3\), .*: first; bad plugin$"),
        ("exit 1", r"ld failed \(exit 1\), so nothing can be built: no output$"),
        ("kill -9 $$", r"ld failed \(killed by SIGKILL\)"),
    ],
)
def test_a_failing_linker_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str) -> None:
    linker(tmp_path, script)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match=message):
        link("out.so", ["in.o"])


def test_a_missing_linker_is_a_machine_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match=r"found neither `ld` nor `cc` on PATH; .*: install binutils"):
        link("out.so", ["in.o"])


def test_a_linker_that_cannot_be_started_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ld").write_text("no program")
    (tmp_path / "ld").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match=r"ld cannot be started: Exec format error; nothing can be built"):
        link("out.so", ["in.o"])
