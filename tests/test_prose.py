"""`.ci/prose` finds phrases that make readers stop, in docstrings, comments and texts, and spares names."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("page.md", "The time\n\nbeside a rival.", 3),
        ("page.md", "Ratios of\nwhich two hold.", 1),
        ("module.py", '"""A module."""\n\n\ndef f(told: int) -> str:\n    return "the parts are alike"\n', 5),
        ("module.py", '"""A module."""\n\n\ndef f() -> int:\n    """Return what is left."""\n    return 0\n', 5),
        ("module.py", '"""A module."""\n\ntold = 1  # drawn at random\n', 3),
        ("module.py", '"""A module."""\n\ntold = beside = "next to it"\n', None),
    ],
)
def test_a_phrase_is_reported_with_its_line(tmp_path: Path, name: str, text: str, line: int | None) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/prose", tmp_path / ".ci")
    (tmp_path / name).write_text(text)

    def check() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, tmp_path / ".ci/prose", name]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    found = check()
    assert found.returncode == (line is not None)
    assert [each.split(":")[1] for each in found.stdout.splitlines()] == ([] if line is None else [str(line)])
    for each in found.stdout.splitlines():
        phrase = each.split("'")[1]
        (tmp_path / ".ci/prose.txt").write_text(f"{name}: {phrase}: a quotation\n")
        assert check().returncode == 0
