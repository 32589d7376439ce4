"""Format numbers, lists and names of kernels for people: significant digits, suitable units, abbreviated lists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite

NONE = "-"
"""The text of a missing value."""

_NUMBER_SUFFIX = re.compile(r"\d+(?=_|$)")
"""The suffix that the compiler adds to make a kernel's name unique: `add1`, `conv2d17`; not the `2d` in `conv2d`."""


def significant(value: float | None, digits: int = 3) -> str:
    """Format a number with `digits` significant digits, without an exponent unless it is very large or small."""
    if value is None or not isfinite(value):
        return NONE
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e7:
        return f"{value:.{digits - 1}e}"
    text = f"{value:#.{digits}g}".rstrip(".")
    return f"{float(text):,.0f}" if "e" in text else text


def milliseconds(seconds: float | None) -> str:
    """Format seconds as milliseconds, without the unit."""
    return significant(None if seconds is None else 1e3 * seconds)


def duration(seconds: float) -> str:
    """Format seconds with a suitable unit, such as 7.76 ms."""
    factor, unit = next(((f, u) for f, u in ((1, "s"), (1e3, "ms"), (1e6, "µs")) if seconds * f >= 1), (1e9, "ns"))
    return f"{significant(factor * seconds)} {unit}"


def times(ratio: float | None) -> str:
    """Format a ratio, such as 1.25x."""
    return NONE if ratio is None else f"{ratio:.2f}x"


def percent(share: float | None) -> str:
    """Format a fraction as a percentage."""
    return NONE if share is None else f"{100 * share:.1f} %"


def pluralize(count: int, noun: str) -> str:
    """Format a count and its noun, which is pluralized unless the count is 1."""
    ending = "" if count == 1 else "es" if noun.endswith(("s", "ch")) else "s"
    return f"{count:,} {noun}{ending}"


def format_names(names: Sequence[str], most: int = 3) -> str:
    """Format the first few names and the number of remaining ones."""
    n_more = len(names) - most
    return ", ".join(names[:most]) + (f" and {n_more} more" if n_more > 0 else "")


def describe_kernel(kernel: str, layers: Sequence[str]) -> str:
    """Format the names of a kernel's layers, or of its operators if it has no layers."""
    return format_names(layers) if layers else _NUMBER_SUFFIX.sub("", kernel.removeprefix("fused_"))
