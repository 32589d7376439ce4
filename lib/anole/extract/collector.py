"""Pauses Python's garbage collector while a model is loaded."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Collects no cycles of objects meanwhile.

    Importing torch, tracing and converting make millions of objects of which nearly all last; the collector would visit
    them again and again, for a quarter of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
