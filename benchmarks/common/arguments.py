"""What the commands of benchmarks share: their descriptions, names in lists, and the log of their progress."""

from __future__ import annotations

import logging
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def described(document: str | None) -> ArgumentParser:
    """Return a parser that shows the description of its file as it is written."""
    return ArgumentParser(description=document, formatter_class=RawDescriptionHelpFormatter)


def of_builds(
    document: str | None, rounds: int, rivals: str | None = None, turn_s: float | None = None
) -> ArgumentParser:
    """Return the parser of a command that times builds in turns, with these defaults; without what is None."""
    parser = described(document)
    parser.add_argument("builds", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=rounds, help="turns of each engine")
    if rivals is not None:
        parser.add_argument("--rivals", default=rivals, help="comma-separated; none if empty")
    if turn_s is not None:
        parser.add_argument("--turn", type=float, default=turn_s, help="least seconds of a turn")
    return parser


def listed(kind: Callable[[str], Any] = str) -> Callable[[str], list[Any]]:
    """Return what reads a comma-separated list."""
    return lambda text: [kind(word) for word in text.split(",") if word]


def chosen(names: str, allowed: Iterable[str]) -> list[str]:
    """Return the names in a comma-separated list; for an empty list, all allowed names.

    Raises:
        SystemExit: a name is unknown.
    """
    known = list(allowed)
    found = [name for name in names.split(",") if name] or known
    if unknown := sorted(set(found) - set(known)):
        raise SystemExit(f"unknown: {', '.join(unknown)}; allowed: {', '.join(known)}")
    return found


def log_progress() -> None:
    """Log what is done, with the time of day."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
