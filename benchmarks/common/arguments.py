"""Command-line parsers for benchmarks, comma-separated lists, and progress logging."""

from __future__ import annotations

import logging
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def make_parser(document: str | None) -> ArgumentParser:
    """Return a parser with a module docstring as its description, not reformatted."""
    return ArgumentParser(description=document, formatter_class=RawDescriptionHelpFormatter)


def parser_for_builds(
    document: str | None, rounds: int, rivals: str | None = None, turn_s: float | None = None
) -> ArgumentParser:
    """Return a parser for a command that times builds; an option whose default is None is left out."""
    parser = make_parser(document)
    parser.add_argument("builds", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=rounds, help="turns per engine")
    if rivals is not None:
        parser.add_argument("--rivals", default=rivals, help="comma-separated; none if empty")
    if turn_s is not None:
        parser.add_argument("--turn", type=float, default=turn_s, help="minimum seconds per turn")
    return parser


def list_of(kind: Callable[[str], Any] = str) -> Callable[[str], list[Any]]:
    """Return a converter of comma-separated text to a list, as the type of an option."""
    return lambda text: [kind(word) for word in text.split(",") if word]


def choose_names(names: str, allowed: Iterable[str]) -> list[str]:
    """Return the names in a comma-separated list; for an empty list, all allowed names.

    Raises:
        SystemExit: a name is unknown.
    """
    known = list(allowed)
    selected = [name for name in names.split(",") if name] or known
    if unknown := sorted(set(selected) - set(known)):
        raise SystemExit(f"unknown: {', '.join(unknown)}; allowed: {', '.join(known)}")
    return selected


def log_progress() -> None:
    """Log progress to standard error, with the time of day."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
