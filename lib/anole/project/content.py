"""The digest of a model's files, which detects changed content regardless of modification times."""

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
"""Digests of smaller files are computed each time."""


def digest_of(files: Iterable[Path], project: Path) -> str | None:
    """Return the digest of the names and contents of a project's files; None without files.

    Digests of large files are cached in ``work/digests.json``, by each file's size, times and inode.
    """
    cache = _Cache(project / layout.DIGESTS)
    found = [[str(file), cache.digest(project / file)] for file in files]
    cache.write()
    return content_key(found) if found else None


class _Cache:
    """A cache of large files' digests by path, each with the file's size, times and inode."""

    def __init__(self, path: Path) -> None:
        self._path, self._kept, self._is_changed = path, dict[str, list[Any]](), False
        with suppress(OSError, ValueError):
            kept = json.loads(path.read_text(encoding="utf-8"))
            self._kept = kept if isinstance(kept, dict) else {}

    def digest(self, file: Path) -> str | None:
        """Return the SHA-256 of a file's content; None if it cannot be read."""
        try:
            found = file.stat()
            state = [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
            known = self._kept.get(str(file))
            if isinstance(known, list) and known[:-1] == state:
                return str(known[-1])
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError:
            return None
        if found.st_size >= _MIN_CACHED_BYTES:
            self._kept[str(file)], self._is_changed = [*state, digest], True
        return digest

    def write(self) -> None:
        """Write new digests; failure to write only costs time."""
        if self._is_changed:
            with suppress(OSError):
                write_atomically(self._path, json.dumps(self._kept, indent=1))
