"""The errors that end a command. Each message says where, what was found and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from pathlib import Path

_LISTED = 24
"""So many names are listed at most; of more only those that are like what was found are told."""

_SHOWN = 80
"""Number of characters of a value that a message shows."""


class AnoleError(Exception):
    """Base class of all errors that Anole raises on purpose; the command line prints them without a traceback."""


class SpecError(AnoleError):
    """A mistake at a place in models.yaml, such as ``builds[1].preset``, or in another file that users write."""

    def __init__(self, path: str, problem: str, file: str = "models.yaml") -> None:
        self.path, self.problem, self.file = path, problem, file
        super().__init__(f"{file}: {path}: {problem}" if path else f"{file}: {problem}")


class DocumentError(AnoleError):
    """A file that a stage writes for another one is missing, broken or stale; the stage can write it again."""

    def __init__(self, path: Path, problem: str, stage: str) -> None:
        self.path, self.problem, self.stage = path, problem, stage
        super().__init__(f"{path}: {problem}; `snakemake --forcerun {stage}` writes it again")


class ExtractError(AnoleError):
    """A model cannot be loaded, imported or turned into tasks."""


class ConfigError(AnoleError):
    """A config is not part of the space it is used with."""


class TargetError(AnoleError):
    """A target is not present on this machine, or does not support the requested operation."""


class MeasureError(AnoleError):
    """The measuring infrastructure itself is broken; never raised for a candidate's own failure."""


class MachineError(MeasureError):
    """A fault of the machine that no candidate can cause: a tool is missing, a disk is full, memory has run out."""


class DeviceLostError(MeasureError):
    """A remote device cannot be reached, or the connection was lost during a call; it may come back."""


class ProjectError(AnoleError):
    """The files of a new project cannot be written."""


class StoreError(AnoleError):
    """A shard or the database cannot be read or written."""


class ShardInUseError(StoreError):
    """Another process has the shard open; it can be used when that process ends."""


class BuildError(AnoleError):
    """A model cannot be compiled, or a build folder cannot be used."""


class ExportError(AnoleError):
    """A build cannot become a C library."""


def suggestion(found: str, allowed: Collection[str]) -> str:
    """Return what may have been meant by a name that is not allowed, and what is allowed."""
    close = difflib.get_close_matches(found, allowed, n=1 if len(allowed) <= _LISTED else 5)
    guess = f"did you mean {' or '.join(repr(name) for name in close)}?" if close else ""
    listed = f"allowed: {', '.join(allowed) or 'nothing'}" if len(allowed) <= _LISTED else ""
    return " ".join(filter(None, (guess, listed))) or f"none of the {len(allowed)} allowed names is like it"


def shown(value: object) -> str:
    """Return a value as a message shows it: on one line, printable and not too long."""
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def cause(error: BaseException, line: int = -1) -> str:
    """Return an error's type and one of its message's non-empty lines: TVM's last says most, torch's first."""
    lines = [text.strip() for text in str(error).splitlines() if text.strip()]
    return f"{type(error).__name__}: {lines[line]}"[:2000] if lines else type(error).__name__
