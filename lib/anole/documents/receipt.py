"""Receipts: what came of tuning, as later stages read it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from anole.errors import ExtractError

_REQUIRED = ("task_key", "run_key", "trials", "config", "latency_s")
_LISTS = ("designs", "rivals", "refined")


def read_receipts(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Returns the receipts of tasks by the task's key; lists that one does not have are empty.

    Args:
        paths: of the receipt of one task, or of those of several: that shared a budget, or were refined.

    Raises:
        ExtractError: one is missing or broken.
    """
    receipts = [receipt for path in paths for receipt in _read(path)]
    return {receipt["task_key"]: receipt for receipt in receipts}


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        return [
            {**{name: receipt[name] for name in _REQUIRED}, **{name: receipt.get(name, []) for name in _LISTS}}
            for receipt in plain.get("receipts", [plain])
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        remedy = "delete it and tune again, which measures nothing twice"
        raise ExtractError(f"{path}: is no receipt ({type(error).__name__}: {error}); {remedy}") from error
