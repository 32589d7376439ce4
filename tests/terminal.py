"""The output of a program on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable


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
