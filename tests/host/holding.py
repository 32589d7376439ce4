"""What a worker holds, and notes when it is given back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


class _Holder:
    """Notes when it is given back."""

    def __init__(self, note: Path) -> None:
        self._note = note

    def __call__(self, *_: object) -> None:
        """Do nothing."""

    def __del__(self) -> None:
        self._note.write_text("given back")


def start_holding(note: Path) -> Callable[..., object]:
    return _Holder(note)
