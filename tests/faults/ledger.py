"""The acknowledged lines of a project's shards, to check that none of them is lost or duplicated."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from anole.keys import canonical_json


class Ledger:
    """A memory of all lines that were complete in a project's shards."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self._lines: dict[Path, list[bytes]] = {}

    def note(self) -> None:
        """Add the lines that are complete now; a shard without a trial has acknowledged nothing."""
        for path in self.shards():
            lines = complete_lines(path)
            if trials_of(path) and len(lines) > len(self._lines.get(path, [])):
                self._lines[path] = lines

    def shards(self) -> list[Path]:
        return sorted(self.project.glob("db/shards/*/*.jsonl"))

    def lost(self) -> int:
        """Return the number of remembered lines that are missing or at another position."""
        return sum(
            before != after
            for path, known in self._lines.items()
            for before, after in zip_longest(known, (complete_lines(path) if path.exists() else [])[: len(known)])
        )

    def doubled(self) -> int:
        """Return the number of trials with the number or the config of an earlier trial of their run."""
        return sum(
            count - 1
            for path in self.shards()
            for member in ("number", "config")
            for count in Counter(canonical_json({"": trial[member]}) for trial in trials_of(path)).values()
        )

    def n_trials(self) -> int:
        """Return the number of trials in all shards."""
        return sum(len(trials_of(path)) for path in self.shards())


def complete_lines(path: Path) -> list[bytes]:
    """Return the lines of a file that end with a newline."""
    return [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def trials_of(path: Path) -> list[dict[str, object]]:
    lines = map(json.loads, complete_lines(path))
    return [line for line in lines if line["kind"] == "trial"]


def n_failed(path: Path) -> int:
    """Return the number of failed trials in a shard."""
    return sum(trial["status"] != "ok" for trial in trials_of(path))


def trials_in(database: Path) -> int:
    """Return the number of trials in a database; assert that it is not damaged; 0 if it does not exist."""
    if not database.exists():
        return 0
    with closing(sqlite3.connect(":memory:")) as db:
        # SQLite would resolve the path of a file in a private mount outside of that mount.
        db.deserialize(database.read_bytes())
        assert db.execute("pragma quick_check").fetchall() == [("ok",)]
        return int(db.execute("select count(*) from trial").fetchone()[0])


@dataclass
class Figures:
    """The total results of all injections of a fault.

    Attributes:
        tried: number of commands that were hit.
        survived: number of commands for which all of the following were 0.
        lost: number of acknowledged lines that are missing.
        doubled: number of duplicated trials.
        false: number of trials that record the fault as a failure.
        orphans: number of processes that did not end.
    """

    tried: int = 0
    survived: int = 0
    lost: int = 0
    doubled: int = 0
    false: int = 0
    orphans: int = 0

    def add(self, *, lost: int = 0, doubled: int = 0, false: int = 0, orphans: int = 0) -> None:
        """Add one injection."""
        self.tried += 1
        self.survived += not (lost or doubled or false or orphans)
        self.lost, self.doubled = self.lost + lost, self.doubled + doubled
        self.false, self.orphans = self.false + false, self.orphans + orphans


AllFigures = dict[tuple[str, str], Figures]
"""The results by stage and fault."""
