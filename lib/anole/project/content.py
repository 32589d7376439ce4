"""The digest of a model's files, which detects changed content even if modification times were restored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from anole.documents import layout
from anole.files import write_atomically
from anole.keys import content_key

_MIN_CACHED_BYTES = 1 << 20
"""Digests of smaller files are not cached."""


def content_digest(files: Iterable[Path], project: Path) -> str | None:
    """Return the digest of the names and contents of a project's files; None without files.

    Digests of large files are cached in ``work/digests.json``, by each file's size, times and inode.
    """
    cache = _Cache(project / layout.DIGESTS)
    digests = [[str(file), cache.digest(project / file)] for file in files]
    cache.write()
    return content_key(digests) if digests else None


class _Cache:
    """A cache of large files' digests by path, each with the file's size, times and inode."""

    def __init__(self, path: Path) -> None:
        self._path, self._entries, self._is_changed = path, dict[str, list[Any]](), False
        with suppress(OSError, ValueError):
            entries = json.loads(path.read_text(encoding="utf-8"))
            self._entries = entries if isinstance(entries, dict) else {}

    def digest(self, file: Path) -> str | None:
        """Return the SHA-256 of a file's content; None if it cannot be read."""
        try:
            status = file.stat()
            state = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
            entry = self._entries.get(str(file))
            if isinstance(entry, list) and entry[:-1] == state:
                return str(entry[-1])
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError:
            return None
        if status.st_size >= _MIN_CACHED_BYTES:
            self._entries[str(file)], self._is_changed = [*state, digest], True
        return digest

    def write(self) -> None:
        """Write new digests; failure to write only costs time."""
        if self._is_changed:
            with suppress(OSError):
                write_atomically(self._path, json.dumps(self._entries, indent=1))
