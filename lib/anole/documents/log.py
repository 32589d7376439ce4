"""The log of a stage: the format of its lines, and parsers for messages, warnings and errors."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

_WARNING, _EXPLANATION = "warning: ", "anole: "
_TIME = re.compile(r"^\d\d:\d\d:\d\d ", re.MULTILINE)


class LogFormatter(logging.Formatter):
    """A formatter that starts lines with the time and marks warnings."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return f"{record.asctime} {_WARNING if record.levelno >= logging.WARNING else ''}{record.message}"


def messages(logs: Iterable[Path]) -> list[str]:
    """Return Anole's messages in logs, each with its following lines, such as a traceback."""
    texts = (path.read_text(errors="replace") for path in logs if path.is_file())
    return [message.rstrip() for text in texts for message in _TIME.split(text)[1:]]


def is_warning(message: str) -> bool:
    """Whether a message of a log is a warning."""
    return message.startswith(_WARNING)


def explanations(logs: Iterable[Path]) -> list[str]:
    """Return Anole's error messages in logs."""
    return [line.removeprefix(_EXPLANATION) for line in _lines(logs) if line.startswith(_EXPLANATION)]


def failure_summary(logs: Sequence[Path]) -> str:
    """Return the last error message, or else the last line, of logs, with their paths."""
    lines = explanations(logs) or _lines(logs) or ["there is no message"]
    return f"{lines[-1]} (see {', '.join(map(str, logs))})"


def last_result(logs: Iterable[Path]) -> str | None:
    """Return the first line of the last message that is not a warning: the result of a finished stage."""
    infos = [message for message in messages(logs) if not is_warning(message)]
    return infos[-1].partition("\n")[0] if infos else None


def _lines(logs: Iterable[Path]) -> list[str]:
    lines_of_logs = (path.read_text(errors="replace").splitlines() for path in logs if path.is_file())
    return [line for lines in lines_of_logs for line in lines if line.strip()]
