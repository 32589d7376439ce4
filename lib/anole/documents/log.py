"""The log of a stage: how its lines are written, and how what they say is found again."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

_WARNING, _EXPLANATION = "warning: ", "anole: "
_TIME = re.compile(r"^\d\d:\d\d:\d\d ", re.MULTILINE)


class LogFormatter(logging.Formatter):
    """Begins a line with the time, and says of a warning that it is one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return f"{record.asctime} {_WARNING if record.levelno >= logging.WARNING else ''}{record.message}"


def messages(logs: Iterable[Path]) -> list[str]:
    """Return what Anole says in logs, in order; each message with the lines that follow it, such as a traceback."""
    texts = (path.read_text(errors="replace") for path in logs if path.is_file())
    return [message.rstrip() for text in texts for message in _TIME.split(text)[1:]]


def is_warning(message: str) -> bool:
    """Whether a message of a log is a warning."""
    return message.startswith(_WARNING)


def explanations(logs: Iterable[Path]) -> list[str]:
    """Return why a stage failed, as Anole says it in lines of logs."""
    return [line.removeprefix(_EXPLANATION) for line in _lines(logs) if line.startswith(_EXPLANATION)]


def last_words(logs: Sequence[Path]) -> str:
    """Return why a stage failed, or else the last line of its logs, and where they are."""
    said = explanations(logs) or _lines(logs) or ["there is no message"]
    return f"{said[-1]} (see {', '.join(map(str, logs))})"


def said_last(logs: Iterable[Path]) -> str | None:
    """Return the first line of the last message that is no warning; of a stage that has ended, that is its result."""
    told = [message for message in messages(logs) if not is_warning(message)]
    return told[-1].partition("\n")[0] if told else None


def _lines(logs: Iterable[Path]) -> list[str]:
    lines = (path.read_text(errors="replace").splitlines() for path in logs if path.is_file())
    return [line for several in lines for line in several if line.strip()]
