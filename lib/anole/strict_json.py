"""A strict JSON parser, which rejects texts that other programs would reject or read differently."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from anole.errors import shown

LARGEST = 1 << 63
"""The magnitude that integers of records and documents stay below: the database stores 64 bits."""

_MAX_DEPTH = 64
"""The maximum nesting of lists and objects in a JSON text."""


def parse_json(text: bytes) -> Any:
    """Return the value of a JSON text in UTF-8.

    Raises:
        ValueError: the text is not JSON in UTF-8, is nested too deeply, or holds NaN, an infinity, a number that is out
            of range or half of a surrogate pair.
    """
    return _parse(text, _STRICT_DECODER)


def parse_record(text: bytes) -> Any:
    """Return the value of a JSON text like `parse_json`, but faster, without checking the ranges of numbers.

    The fields of a record are checked afterwards, see `decode`.
    """
    return _parse(text, _RECORD_DECODER)


def _parse(text: bytes, decoder: json.JSONDecoder) -> Any:
    try:
        value = decoder.decode(text.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if b"\\ud" in text or b"\\uD" in text:
        json.dumps(value, ensure_ascii=False).encode()
    if text.count(b"[") + text.count(b"{") > _MAX_DEPTH:
        _check_depth(value)
    return value


def _parse_integer(digits: str) -> int:
    value = int(digits)
    if not -LARGEST <= value < LARGEST:
        raise ValueError(f"{shown(digits)} does not fit into 64 bits")
    return value


def _parse_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{shown(digits)} is out of range")
    return value


def _check_depth(value: Any) -> None:
    """Raise ValueError for a value with more than `_MAX_DEPTH` levels of lists and objects."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        inner = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, (dict, list)))
        level = [item for items in inner for item in items]
        if not level:
            return
    raise ValueError(f"it has more than {_MAX_DEPTH} levels of lists and objects")


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")


_RECORD_DECODER = json.JSONDecoder(parse_constant=_reject_constant)
_STRICT_DECODER = json.JSONDecoder(parse_constant=_reject_constant, parse_int=_parse_integer, parse_float=_parse_float)
