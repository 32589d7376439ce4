"""If Snakemake is killed while it cleans up after a failed merge, the database stays byte for byte unchanged."""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from ..workflow.conftest import Project
from .conftest import RECORDED, SNAKEMAKE
from .ledger import complete_lines, trials_in
from .processes import Running

pytestmark = pytest.mark.workflow

SIZE_BYTES = 96 << 20
"""Copying a database of this size takes long enough to kill the process meanwhile."""


def state_of(path: Path) -> tuple[int, int, int] | None:
    """Return file attributes that change when the file is written or replaced; None if it is missing."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def test_a_failed_merge_whose_snakemake_is_killed_leaves_the_database_unchanged(built: Project) -> None:
    database = built.folder / "db/tuning.sqlite"
    with closing(sqlite3.connect(database)) as db:
        db.execute("create table notes (text blob)")
        db.execute("insert into notes values (randomblob(?))", [SIZE_BYTES])
        db.commit()
    before, state = hashlib.sha256(database.read_bytes()).digest(), state_of(database)
    (shard,) = built.shards()
    lines = complete_lines(shard)
    shard.write_bytes(b"".join([*lines[:2], b"nonsense\n", *lines[2:]]))

    running = Running([*SNAKEMAKE, "--forcerun", "merge"], built.folder)
    while running.process.poll() is None:
        if state_of(database) != state:
            os.killpg(running.process.pid, signal.SIGKILL)
        time.sleep(0.001)
    assert running.wait() != 0, running.output
    assert not running.orphans()
    assert hashlib.sha256(database.read_bytes()).digest() == before

    shard.write_bytes(b"".join(lines))
    outcome = built.snakemake()
    assert (outcome.code, list(outcome.jobs)) == (0, ["merge"]), outcome.output
    assert trials_in(database) == RECORDED
