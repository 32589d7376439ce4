"""Tables are as wide as a terminal, and whole where nobody sees a terminal."""

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
from rich.table import Table
from rich.text import Text
from anole.commands.shared import show

table = Table()
table.add_column("kernel")
table.add_column("time", no_wrap=True)
table.add_row(Text({NAME!r}, no_wrap=True, overflow="ellipsis"), "1.000 ms")
show(table)
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(anole.__file__).parents[1]), "COLUMNS": "60"}


@pytest.mark.parametrize("terminal", [{}, {"FORCE_COLOR": "1", "TERM": "xterm"}, {"FORCE_COLOR": "1", "TERM": "dumb"}])
def test_in_a_file_no_name_is_cut(terminal: dict[str, str]) -> None:
    environment = {**ENVIRONMENT, **terminal}
    shown = subprocess.run([sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=True)
    assert NAME in shown.stdout and "1.000 ms" in shown.stdout


def test_on_a_terminal_a_name_is_cut_so_that_numbers_stay_whole() -> None:
    master, slave = pty.openpty()
    subprocess.run([sys.executable, "-c", SHOW], stdout=slave, env={**ENVIRONMENT, "TERM": "xterm"}, check=True)
    os.close(slave)
    drawn = os.read(master, 1 << 16).decode()
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn).splitlines()
    os.close(master)
    assert max(map(len, lines)) == 60
    assert NAME not in "".join(lines) and any("1.000 ms" in line for line in lines)
