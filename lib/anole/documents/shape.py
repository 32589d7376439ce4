"""The shape of stored JSON: which fields an object has, and what may stand in them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import NoneType
from typing import Any, NoReturn

Types = frozenset[type]
Rule = Types | re.Pattern[str] | list["Shape"]
Shape = Mapping[str, Rule]
"""The rule of each field: types, a pattern of text, or a list of objects of one shape."""

TEXT: Types = frozenset({str})
WHOLE: Types = frozenset({int})
NUMBER: Types = frozenset({int, float})
OBJECT: Types = frozenset({dict})
LIST: Types = frozenset({list})
FLAG: Types = frozenset({bool})
NOTHING: Types = frozenset({NoneType})
KEY = re.compile(r"[0-9a-f]{64}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")

_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    dict: "an object",
    list: "a list",
    bool: "true or false",
    NoneType: "null",
}
_SHOWN = 60


def parse_json(text: bytes) -> Any:
    """Returns the value of a JSON text in UTF-8.

    Raises:
        ValueError: it is not such a text, or it holds NaN or an infinity.
    """
    return json.loads(text.decode(), parse_constant=_refuse)


def misfit(value: object, shape: Shape, place: str = "") -> str | None:
    """Says what is wrong with a JSON value, or None when it has the shape.

    A field that may be null may be absent; fields that the shape does not name are let through.

    Args:
        value: what was read.
        shape: what is expected.
        place: where the value stands in its document, such as ``tasks[3].``; for the message.
    """
    if not isinstance(value, dict):
        return f"{place.rstrip('.') or 'the value'} is {shown(value)}, not an object"
    for name, rule in shape.items():
        found, here = value.get(name), place + name
        if isinstance(rule, frozenset):
            problem = None if type(found) in rule else f"{here} is {shown(found)}, not {_named(rule)}"
        elif isinstance(rule, re.Pattern):
            problem = _mismatch(found, rule, here)
        else:
            problem = _misfit_in_list(found, rule[0], here)
        if problem is not None:
            return problem if name in value else f"{here} is missing"
    return None


def shown(value: object) -> str:
    """Returns a value as a message shows it: on one line and not too long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")


def _named(types: Types) -> str:
    kinds = types - WHOLE if float in types else types
    return " or ".join(word for kind, word in _WORDS.items() if kind in kinds)


def _mismatch(value: object, pattern: re.Pattern[str], place: str) -> str | None:
    if isinstance(value, str) and pattern.fullmatch(value):
        return None
    return f"{place} is {shown(value)}, not of the form {pattern.pattern}"


def _misfit_in_list(value: object, shape: Shape, place: str) -> str | None:
    if not isinstance(value, list):
        return f"{place} is {shown(value)}, not a list"
    problems = (misfit(item, shape, f"{place}[{index}].") for index, item in enumerate(value))
    return next((problem for problem in problems if problem is not None), None)
