"""Content keys, derived seeds and the writing of files that are named by them."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def canonical_json(value: object) -> str:
    """Returns the one JSON text of a value: sorted keys, no spaces, no NaN.

    Raises:
        ValueError: the value holds NaN or an infinity.
        TypeError: the value is not JSON.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_key(value: object) -> str:
    """Returns the SHA-256 of the canonical JSON of a value, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def derive_seed(*parts: str | int) -> int:
    """Returns a 63-bit seed that depends on all parts, so that the order of tasks never matters."""
    return int(content_key(list(parts))[:16], 16) >> 1


def document(plain: Mapping[str, Any]) -> str:
    """Returns the text of a JSON file that people may read too.

    Raises:
        ValueError: a number is not finite.
    """
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write_atomically(path: Path, text: str) -> bool:
    """Writes a text file by rename, and only when its content differs.

    An unchanged file keeps its modification time, so that nothing that depends on it runs again.

    Returns:
        Whether the file was written.
    """
    if path.exists() and path.read_text() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return True
