"""The log of a stage: how its lines are written, and how what they say is found again."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from pathlib import Path

_WARNING = "warning: "
_ERROR = "anole: "
_TIME = re.compile(r"^\d\d:\d\d:\d\d ", re.MULTILINE)


class LogFormatter(logging.Formatter):
    """Begins a line with the time, and says of a warning that it is one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Returns the line of a record."""
        return f"{record.asctime} {_WARNING if record.levelno >= logging.WARNING else ''}{record.message}"


def messages(logs: Iterable[Path]) -> list[str]:
    """Returns what Anole says in logs, in order; each message with the lines that follow it, such as a traceback."""
    texts = (path.read_text(errors="replace") for path in logs if path.is_file())
    return [message.rstrip() for text in texts for message in _TIME.split(text)[1:]]


def is_warning(message: str) -> bool:
    """Returns whether a message of a log is a warning."""
    return message.startswith(_WARNING)


def is_explained(text: str) -> bool:
    """Returns whether a log says in a line of Anole's why its stage failed."""
    return bool(_errors(text))


def errors(logs: Iterable[Path]) -> list[str]:
    """Returns the messages with which commands failed, in order."""
    return [error for path in logs if path.is_file() for error in _errors(path.read_text(errors="replace"))]


def _errors(text: str) -> list[str]:
    return [line.removeprefix(_ERROR) for line in text.splitlines() if line.startswith(_ERROR)]


def said_last(logs: Iterable[Path]) -> str | None:
    """Returns the first line of the last message that is no warning; of a stage that has ended, that is its result."""
    told = [message for message in messages(logs) if not is_warning(message)]
    return told[-1].partition("\n")[0] if told else None
