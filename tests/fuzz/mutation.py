"""Structured mutations of JSON and YAML, which stay valid and get past the parser."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import yaml

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 2**31, 2**62, 2**64, 10**30, -(10**30), 0.0, -0.0, 1e-300, 1e300, -1.5,
    float("nan"), float("inf"), "", "x", "0", "\ud800", "\0", "é", "a" * 3000, "2026-13-45T99:00:00Z", "f" * 64,
    [], {}, [[]], [0], [None], [1, 2, 3, 4], {"": 0}, {"kind": "cpu"}, [[[[[[[[[[0]]]]]]]]]],
)  # fmt: skip
"""The values to insert."""


def changed(data: bytes, name: str, seed: int) -> bytes | None:
    """Change one value of a reader's input; return None if the input has no JSON or YAML value to change."""
    draw = random.Random(seed)
    if name == "spec":
        return _change_yaml(data, draw)
    kind, lines = data[:1], data[1:].split(b"\n")
    numbers = list(range(len(lines)))
    draw.shuffle(numbers)
    for number in numbers:
        with suppress(ValueError, RecursionError):
            plain = json.loads(lines[number])
            if isinstance(plain, (dict, list)) and plain:
                text = json.dumps(_change_one(plain, draw), separators=(",", ":"), ensure_ascii=False)
                lines[number] = text.encode(errors="surrogatepass")
                return kind + b"\n".join(lines)
    if name == "database":
        return kind + json.dumps([_row(draw)]).encode()
    return None


def _change_yaml(data: bytes, draw: random.Random) -> bytes | None:
    with suppress(Exception):
        plain = yaml.safe_load(data)
        if isinstance(plain, (dict, list)) and plain:
            return yaml.safe_dump(_change_one(plain, draw), sort_keys=False, allow_unicode=True).encode()
    return None


def _change_one(plain: Any, draw: random.Random) -> Any:
    """Replace, remove, duplicate or copy one value."""
    slots = list(_slots(plain))
    holder, key = draw.choice(slots)
    action = draw.randrange(6)
    if action < 3:
        holder[key] = draw.choice(VALUES)
    elif action == 3:
        other, other_key = draw.choice(slots)
        holder[key] = other[other_key] if other is not holder else draw.choice(VALUES)
    elif action == 4:
        del holder[key]
    elif isinstance(holder, list):
        holder.insert(key, holder[key])
    else:
        holder[draw.choice(("", "x", "key", "kind", str(key) + "_"))] = holder[key]
    # A value may now contain itself.
    return json.loads(json.dumps(plain))


def _slots(plain: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container in a value, with the key or index of each of its items."""
    items = plain.items() if isinstance(plain, dict) else enumerate(plain)
    for key, value in list(items):
        yield plain, key
        if isinstance(value, (dict, list)):
            yield from _slots(value)


_COLUMNS = {
    "run": ("key", "task_key", "preset", "seed", "tuner_version", "settings", "threads", "host", "started_at"),
    "task": ("key", "operator", "label", "workload", "target", "template_version", "flop"),
    "trial": ("run_key", "number", "iteration", "config", "status", "latency_s", "repeats", "gflops", "created_at"),
    "confirmation": ("run_key", "number", "config", "status", "latency_s", "after_trials", "rank"),
    "iteration": ("run_key", "number", "log"),
    "space": ("task_key", "size", "sampled", "rejections"),
    "warm_start": ("run_key", "source_run_key", "source_task_key", "trials"),
}


def _row(draw: random.Random) -> list[Any]:
    """Choose a change of a database value: table, row, column and value."""
    table = draw.choice(sorted(_COLUMNS))
    return [table, draw.randrange(5), draw.choice(_COLUMNS[table]), draw.choice(VALUES)]
