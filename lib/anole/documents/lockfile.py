"""The lock file, which users commit: the config with which to compile each task of a build."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from anole.codec import DecodeError, Range, decode, encode
from anole.documents import layout
from anole.documents.receipt import Receipt
from anole.errors import SpecError, shown
from anole.files import read_regular, write_atomically
from anole.keys import Key, content_key
from anole.record import Config
from anole.strict_json import parse_json

_MAX_INDENTED_LEVELS = 5
"""The number of indented levels of objects, down to tasks. A config has one line, which suits readers and git."""


@dataclass(frozen=True)
class LockedTask:
    """A task and the config with which to compile it.

    Attributes:
        latency_s: measured seconds of one call; None if the config was never measured.
        run_key: the run that found the config; None for an untuned config.
    """

    label: str
    config: Config = field(hash=False)
    latency_s: Annotated[float, Range(1e-10, 1e6)] | None
    run_key: Key | None


@dataclass(frozen=True)
class LockedBuild:
    """The configs of a build by task key, with the complete description of the target."""

    target: Mapping[str, Any] = field(hash=False)
    tasks: Mapping[Key, LockedTask] = field(hash=False)

    @cached_property
    def key(self) -> str:
        """The content key of the entry; a different key compiles the build again."""
        return content_key(encode(self))


@dataclass(frozen=True)
class Lockfile:
    """The locked builds by name, and the path of the file, which may not exist."""

    path: Path
    builds: Mapping[str, LockedBuild] = field(default_factory=dict, hash=False)

    def check_target(self, build: str, description: Mapping[str, Any]) -> None:
        """Raise SpecError if a build is locked for a target with another description."""
        entry = self.builds.get(build)
        if entry is None:
            return
        locked_target = {**dict.fromkeys(description), **entry.target}
        changes = [f"{name} is {shown(locked_target[name])}, but {shown(description.get(name))} here"
                     for name in locked_target if locked_target[name] != description.get(name)]  # fmt: skip
        if changes:
            raise SpecError(
                f"builds.{build}.target",
                f"differs from the target in models.yaml: {'; '.join(changes)}. Compile on the locked hardware, set "
                f"these values for the target in models.yaml, or unlock the build (`anole lock --remove {build}`)",
                str(self.path),
            )


@dataclass(frozen=True)
class LockedReceipt(Receipt):
    """A receipt made from a locked config, with its location in the lock file."""

    place: str = ""


def read_lockfile(path: Path) -> Lockfile:
    """Read a lock file; if it does not exist, no build is locked.

    Raises:
        SpecError: the file cannot be read, or has a mistake.
    """
    file = str(path)
    try:
        plain = parse_json(text := read_regular(path))
        json.loads(text, object_pairs_hook=_reject_duplicates)
    except FileNotFoundError:
        return Lockfile(path)
    except OSError as error:
        raise SpecError("", f"cannot be read: {error.strerror}", file) from error
    except ValueError as error:
        remedy = "fix it, or delete it and run `anole lock` again"
        raise SpecError("", f"is not JSON: {error}; {remedy}", file) from error
    try:
        return Lockfile(path, decode(_Content, plain, strict=True).builds)
    except DecodeError as error:
        raise SpecError(error.place, error.problem, file) from None


def write_lockfile(lockfile: Lockfile) -> None:
    """Write a lock file if its content differs; delete it if no build is locked."""
    if lockfile.builds:
        write_atomically(lockfile.path, text_of(lockfile))
    else:
        lockfile.path.unlink(missing_ok=True)


def text_of(lockfile: Lockfile) -> str:
    """Return the text of a lock file, sorted for clean merges in git."""
    return _text(encode(_Content(1, lockfile.builds)), 1) + "\n"


def locked_receipts(lockfile: Lockfile, build: str, trials: int) -> dict[str, Receipt]:
    """Return the locked configs of a build as receipts, by task key."""
    return {
        key: LockedReceipt(
            key, task.run_key or "", trials, task.config, task.latency_s,
            place=f"{lockfile.path}: builds.{build}.tasks.{key} ({task.label})",
        )
        for key, task in lockfile.builds[build].tasks.items()
    }  # fmt: skip


def lockfile_path(project: Path) -> Path:
    """Return the path of a project's lock file."""
    return project / layout.LOCKFILE


@dataclass(frozen=True)
class _Content:
    """The content of the file."""

    schema: Literal[1]
    builds: Mapping[str, LockedBuild] = field(hash=False)


def _text(value: Any, level: int) -> str:
    if not isinstance(value, Mapping) or level > _MAX_INDENTED_LEVELS or not value:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
    indent = level * " "
    lines = [
        f"{indent}{json.dumps(name, ensure_ascii=False)}: {_text(value[name], level + 1)}" for name in sorted(value)
    ]
    return "{\n" + ",\n".join(lines) + "\n" + indent[1:] + "}"


def _reject_duplicates(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Raise ValueError for an object with a duplicate key, which a merge in git may produce."""
    entries: dict[str, Any] = {}
    for name, value in pairs:
        if name in entries:
            raise ValueError(f"it has the key {shown(name)} twice in one object")
        entries[name] = value
    return entries
