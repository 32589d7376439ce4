"""Busy neighbours: processes that never rest, as other services of a shared machine do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from anole.errors import AnoleError

_LOOP = """
import os, threading

def end_with_parent():
    os.read(0, 1)
    os._exit(0)

threading.Thread(target=end_with_parent, daemon=True).start()
os.write(1, b"!")
while True:
    pass
"""
"""What a neighbour does. The system closes the other end of its standard input when this process ends, however it ends;
the thread that waits for that sleeps until then."""


@contextmanager
def busy_neighbours(count: int) -> Iterator[list[int]]:
    """Runs busy processes beside this one, of the same priority and on the same cores; yields their process ids.

    They end with the block, or when this process ends, also when it is killed.

    Args:
        count: how many; 0 runs none.

    Raises:
        AnoleError: one does not start, or ended before the block did.
    """
    with ExitStack() as running:
        neighbours = [running.enter_context(_neighbour()) for _ in range(count)]
        yield [neighbour.pid for neighbour in neighbours]
        if any(neighbour.poll() is not None for neighbour in neighbours):
            raise AnoleError("a busy neighbour ended before the timing did, so it shows nothing; run it again")


@contextmanager
def _neighbour() -> Iterator[subprocess.Popen[bytes]]:
    """Starts a neighbour, waits until it is busy, and kills it after the block."""
    command = [sys.executable, "-I", "-S", "-c", _LOOP]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as neighbour:
        try:
            assert neighbour.stdout is not None
            if not neighbour.stdout.read(1):
                raise AnoleError(f"a busy neighbour does not start: its process exited with {neighbour.wait()}")
            yield neighbour
        finally:
            neighbour.kill()
