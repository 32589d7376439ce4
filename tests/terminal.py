"""The output of commands, of programs on a terminal, and of tables."""

from __future__ import annotations

import io
import os
import pty
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any

from click.testing import CliRunner, Result
from rich.console import Console, RenderableType

from anole.__main__ import main

run_command = partial(subprocess.run, capture_output=True, text=True, check=False)
"""Run a command, and capture its output."""


def anole(*arguments: object) -> Result:
    """Run a command of Anole in this process."""
    return CliRunner().invoke(main, list(map(str, arguments)))


def terminal_output_of(start: Callable[[int], subprocess.Popen[str]]) -> str:
    """Return the output of a process on a terminal, including control characters; it must succeed."""
    master, slave = pty.openpty()
    process = start(slave)
    os.close(slave)
    output = b""
    while True:
        try:
            output += os.read(master, 1 << 16)
        except OSError:
            break
    os.close(master)
    process.communicate(timeout=120)
    assert process.returncode == 0
    return output.decode()


def rendered(table: RenderableType, width: int, **settings: Any) -> str:
    """Return the text of a table on a terminal of some width."""
    console = Console(file=io.StringIO(), width=width, **settings)
    with console.capture() as captured:
        console.print(table)
    return captured.get()
