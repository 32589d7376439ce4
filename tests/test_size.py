"""`.ci/size` counts tracked lines by folder, and fails if a budget is exceeded or raised without a reason."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


def run_check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([folder / ".ci/size", *arguments], capture_output=True, text=True, check=False)


def budget(folder: Path, lines: int) -> None:
    budget = {"lines": lines, "files of lib": 9, "words of docs": 9, "rooms": {}}
    (folder / ".ci/budget.json").write_text(json.dumps(budget))


def commit(folder: Path, message: str) -> None:
    name = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *name, "-C", folder, "add", "."], check=True)
    subprocess.run(["git", *name, "-C", folder, "commit", "--quiet", "-m", message], check=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with three lines in two folders, and two words."""
    for folder, n in (("lib/anole/targets/cpu", 2), ("tests", 1)):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file.py").write_text("pass\n" * n)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/size", tmp_path / ".ci")
    (tmp_path / "page.md").write_text("two words")
    (tmp_path / "pyproject.toml").write_text('version = "1"\n')
    budget(tmp_path, lines=4)
    return tmp_path


def test_folders_must_stay_within_their_budgets_and_lines_may_move(project: Path) -> None:
    assert "is not checked" in run_check(project).stdout
    subprocess.run(["git", "init", "--quiet", project], check=True)
    commit(project, "Begin")
    found = run_check(project)
    assert found.returncode == 1 and "tests exceeds its budget" in found.stdout
    found = run_check(project, "--assign")
    assert found.returncode == 0
    assert [line.split()[:4] for line in found.stdout.splitlines()] == [
        ["lib/anole/targets/cpu", "2", "of", "2"],
        ["tests", "1", "of", "1"],
        ["lines", "3", "of", "4"],
        ["files", "of", "lib", "1"],
        ["words", "of", "docs", "2"],
    ]
    (project / "tests/file.py").write_text("pass\n" * 2)
    assert run_check(project).returncode == 1
    assert run_check(project, "--assign").returncode == 0
    (project / "tests/file.py").write_text("pass\n" * 3)
    assert "lines exceeds its budget" in run_check(project, "--assign").stdout


def test_a_commit_that_raises_the_budget_needs_a_reason(project: Path) -> None:
    subprocess.run(["git", "init", "--quiet", project], check=True)
    run_check(project, "--assign")
    commit(project, "Begin")
    (project / "tests/file.py").write_text("pass\n" * 3)
    budget(project, lines=6)
    run_check(project, "--assign")
    commit(project, "Add lines")
    found = run_check(project)
    assert found.returncode == 1 and "needs `Budget: +2 lines, because ...`" in found.stdout
    assert "tests" in found.stdout and "+2 since the release" in found.stdout
    subprocess.run(["git", "-C", project, "reset", "--quiet", "--soft", "HEAD^"], check=True)
    commit(project, "Add lines\n\nBudget: +2 lines, because issue 7 allows them")
    assert run_check(project).returncode == 0
