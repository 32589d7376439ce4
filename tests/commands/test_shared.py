"""Tables fit the width of a terminal, and are complete in files."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import anole

NAME = "fused_conv2d_" + 20 * "add_relu_"
SHOW = f"""
from anole.commands.shared import show
from anole.report.tables import plain_table

rows = [("kept whole", {NAME!r}, "1.00 ms", "", "7"), ("short", "", "2.00 ms", "", "")]
show(plain_table(("task", "layers"), ("time", "failed", "calls"), rows))
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(anole.__file__).parents[1]), "COLUMNS": "60"}


@pytest.mark.parametrize("terminal", [{}, {"FORCE_COLOR": "1", "TERM": "xterm"}, {"FORCE_COLOR": "1", "TERM": "dumb"}])
def test_names_are_complete_in_a_file(terminal: dict[str, str]) -> None:
    environment = {**ENVIRONMENT, **terminal}
    shown = subprocess.run([sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=True)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown.stdout).splitlines()
    assert [re.split(r"\s{2,}", line) for line in lines] == [
        ["task", "layers", "time", "calls"],
        ["kept whole", NAME, "1.00 ms", "7"],
        ["short", "2.00 ms"],
    ]


def test_names_are_truncated_on_a_terminal_and_numbers_are_not() -> None:
    master, slave = pty.openpty()
    subprocess.run([sys.executable, "-c", SHOW], stdout=slave, env={**ENVIRONMENT, "TERM": "xterm"}, check=True)
    os.close(slave)
    output = os.read(master, 1 << 16).decode()
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output).splitlines()
    os.close(master)
    assert max(map(len, lines)) == 60
    task, layers, time, calls = re.split(r"\s{2,}", lines[1])
    assert (task, time, calls) == ("kept whole", "1.00 ms", "7")
    assert layers.endswith("…") and NAME.startswith(layers[:-1]) and len(layers) > 20
