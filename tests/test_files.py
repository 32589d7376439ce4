"""Atomic writes, and removal of unfinished files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anole.files import write_atomically

DAY_S = 24 * 3600.0


def age(path: Path, seconds: float) -> None:
    then_s = time.time() - seconds
    os.utime(path, (then_s, then_s))


def kill_while_writing(path: Path) -> Path:
    """Kill a process before it can rename a file, and return the unfinished file that it left."""
    code = (
        "import os, signal, sys, pathlib\n"
        "from anole import files\n"
        "files.replace_durably = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)\n"
        "files.write_atomically(pathlib.Path(sys.argv[1]), 'half')"
    )
    before = set(path.parent.iterdir())
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -signal.SIGKILL
    (left,) = set(path.parent.iterdir()) - before
    return left


def test_an_unchanged_file_keeps_its_time(tmp_path: Path) -> None:
    path = tmp_path / "folder/file.json"
    assert write_atomically(path, "one")
    age(path, 100)
    before = path.stat().st_mtime_ns
    assert not write_atomically(path, b"one") and path.stat().st_mtime_ns == before
    assert write_atomically(path, "two") and path.read_text() == "two"
    assert list(path.parent.iterdir()) == [path]


def test_unfinished_files_are_removed_after_a_day(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    left = [kill_while_writing(path) for _ in range(3)]
    others = [tmp_path / name for name in (".file.json.mine", ".other.json.abcdefgh.new", "file.json.new")]
    for other in others:
        other.write_text("mine")
        age(other, 2 * DAY_S)
    age(left[0], DAY_S + 60)
    age(left[1], DAY_S - 60)
    write_atomically(path, "whole")
    assert sorted(tmp_path.iterdir()) == sorted([path, left[1], left[2], *others])


def test_an_error_leaves_no_files(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_atomically(tmp_path / "folder", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
