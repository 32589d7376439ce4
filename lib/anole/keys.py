"""Content keys (SHA-256 of canonical JSON), and seeds derived from them."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated

_KEY = re.compile(r"[0-9a-f]{64}")

Key = Annotated[str, _KEY]
"""A content key."""

Time = Annotated[str, re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")]
"""A time as ISO 8601 text in UTC."""


# Shared because `json.dumps` would construct an encoder per call, which takes as long as encoding a config.
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def canonical_json(value: object) -> str:
    """Return the canonical JSON text of a value: sorted keys, no spaces; raise ValueError for NaN and infinities."""
    return _encode(value)


def content_key(value: object) -> str:
    """Return the SHA-256 of the canonical JSON of a value, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def is_key(text: str) -> bool:
    """Whether a text has the form of a content key."""
    return _KEY.fullmatch(text) is not None


def derive_seed(*parts: str | int) -> int:
    """Return a 63-bit seed that depends only on the parts, not on the order in which tasks run."""
    return int(content_key(list(parts))[:16], 16) >> 1
