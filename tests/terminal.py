"""What a program draws on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable


def drawn_on_a_terminal(start: Callable[[int], subprocess.Popen[str]]) -> str:
    """Return all that a process draws with control characters, given a descriptor of a terminal; it must end well."""
    master, slave = pty.openpty()
    process = start(slave)
    os.close(slave)
    drawn = b""
    while True:
        try:
            drawn += os.read(master, 1 << 16)
        except OSError:
            break
    os.close(master)
    process.communicate(timeout=120)
    assert process.returncode == 0
    return drawn.decode()
