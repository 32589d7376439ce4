"""Exceptions that end a command; their messages name the location, the value found and the allowed values."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from pathlib import Path

_MAX_LISTED = 24
"""Messages list all allowed names if there are at most this many, and otherwise only close matches."""

_MAX_SHOWN = 80
"""Maximum number of characters of a value in a message."""


class AnoleError(Exception):
    """The base class of Anole's errors; the command line prints them without a traceback."""


class SpecError(AnoleError):
    """A mistake at a path in models.yaml, such as ``builds[1].preset``, or in another file written by users."""

    def __init__(self, path: str, problem: str, file: str = "models.yaml") -> None:
        self.path, self.problem, self.file = path, problem, file
        super().__init__(f"{file}: {path}: {problem}" if path else f"{file}: {problem}")


class DocumentError(AnoleError):
    """A stage's output file is missing, damaged or stale; running the stage again fixes it."""

    def __init__(self, path: Path, problem: str, stage: str) -> None:
        self.path, self.problem, self.stage = path, problem, stage
        super().__init__(f"{path}: {problem}; `snakemake --forcerun {stage}` writes it again")


class ExtractError(AnoleError):
    """A model cannot be loaded, imported or turned into tasks."""


class ConfigError(AnoleError):
    """A config is not in the search space."""


class TargetError(AnoleError):
    """A target is not available on this machine, or does not support the operation."""


class MeasureError(AnoleError):
    """The measurement infrastructure failed; never raised for the failure of a candidate."""


class MachineError(MeasureError):
    """A fault of the machine that no candidate can cause: a missing tool, a full disk, exhausted memory."""


class DeviceLostError(MeasureError):
    """A remote device is unreachable, or the connection was lost during a call; it may come back."""


class ProjectError(AnoleError):
    """The files of a new project cannot be written."""


class StoreError(AnoleError):
    """A shard or the database cannot be read or written."""


class ShardInUseError(StoreError):
    """Another process has the shard open; retry after that process has ended."""


class BuildError(AnoleError):
    """A model cannot be compiled, or a build folder cannot be used."""


class ExportError(AnoleError):
    """A build cannot be exported as a C library."""


def suggestion(found: str, allowed: Collection[str]) -> str:
    """Return a hint for an unknown name: close matches and the allowed names."""
    close = difflib.get_close_matches(found, allowed, n=1 if len(allowed) <= _MAX_LISTED else 5)
    hint = f"did you mean {' or '.join(repr(match) for match in close)}?" if close else ""
    names = f"allowed: {', '.join(allowed) or 'nothing'}" if len(allowed) <= _MAX_LISTED else ""
    return " ".join(filter(None, (hint, names))) or f"none of the {len(allowed)} allowed names is similar"


def shown(value: object) -> str:
    """Return the printable text of a value for a message, truncated to one short line."""
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def cause(error: BaseException, line: int = -1) -> str:
    """Return an error's type and one line of its message; TVM states the cause in the last line, torch in the first."""
    lines = [text.strip() for text in str(error).splitlines() if text.strip()]
    return f"{type(error).__name__}: {lines[line]}"[:2000] if lines else type(error).__name__
