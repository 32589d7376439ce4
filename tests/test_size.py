"""`.ci/size` counts what git tracks, and fails beyond the budget."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def checked(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([folder / ".ci/size"], capture_output=True, text=True, check=False)


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_what_git_tracks_must_stay_within_the_budget(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    (tmp_path / "lib").mkdir()
    shutil.copy(ROOT / ".ci/size", tmp_path / ".ci")
    (tmp_path / "lib/large.py").write_text("pass\n" * 1_000_000)
    (tmp_path / "page.md").write_text("two words")
    assert "is not checked" in checked(tmp_path).stdout
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    assert checked(tmp_path).returncode == 0
    subprocess.run(["git", "-C", tmp_path, "add", "lib", "page.md"], check=True)
    found = checked(tmp_path)
    assert found.returncode == 1 and "words of docs              2 of" in found.stdout
    assert found.stdout.splitlines()[-1].startswith("more lines of lib than the budget")
