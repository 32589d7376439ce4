"""Commands that append, merge or import trials, and the conditions that must hold after a fault and after success."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from anole.errors import StoreError
from anole.store.content import ShardContent
from anole.store.shard import Shard, read_shard, shard_path

from ..record_project import CONV, DENSE, Project, dump_of, run_of
from .crash_states import Disk
from .driver import CONFIRMED_S, LATENCIES_S
from .system_calls import Call, Driver, Ended, Entry

T = TypeVar("T")

LISTED = 40
"""Maximum number of failed cases to list."""


@dataclass(frozen=True)
class Scenario:
    """A command with its pre- and postconditions.

    Attributes:
        prepare: fills the project's folder.
        arguments: the command line for a project's folder.
        standing: checks the conditions that must hold after any fault.
        complete: checks the conditions that must hold after success.
    """

    prepare: Callable[[Path], object]
    arguments: Callable[[Path], list[str]]
    standing: Callable[[Path, Ended], None]
    complete: Callable[[Path], None]


class Broken(Exception):
    """A condition does not hold; the message says which."""


def require(holds: bool, problem: str) -> None:
    """Raise `Broken` unless a condition holds; pytest's assertions would be too slow for hundreds of cases."""
    if not holds:
        raise Broken(problem)


def verify(driver: Driver, wanted: Scenario, ended: Ended, folder: Path) -> str:
    """Check the conditions after a fault, repeat the command, and check again; return the problem, or an empty text."""
    try:
        wanted.standing(folder, ended)
        repeated = driver.run(wanted.arguments(folder), folder)
        require(repeated.status == 0, f"ends afterwards with status {repeated.status} and {shorten(repeated.error)}")
        wanted.complete(folder)
    except Exception as problem:
        return f"{type(problem).__name__}: {str(problem)[:500]}"
    return ""


def shorten(error: str) -> str:
    """Shorten a traceback to the last lines of this package and the error."""
    lines = [line.strip() for line in error.splitlines()]
    return " | ".join([line for line in lines if "anole" in line][-2:] + lines[-1:])


def fail_if(problems: Sequence[str], n_tried: int) -> None:
    """Fail the test if there are problems, and list the first ones."""
    if problems:
        listed = [f"{len(problems)} of {n_tried} cases failed", *problems[:LISTED]]
        pytest.fail("\n".join(listed), pytrace=False)


def try_all(title: str, cases: Sequence[T], n_all: int, problem: Callable[[T], str], label: Callable[[T], str]) -> None:
    """Fail the test if any of the cases, a sample of `n_all`, has a problem."""
    problems = [f"{label(case)}: {found}" for case in cases if (found := problem(case))]
    print(f"{title}, {len(cases)} of {n_all} cases, {len(problems)} failed")
    fail_if(problems, len(cases))


def trials_of(folder: Path) -> dict[str, set[tuple[Any, ...]]]:
    """Return the states of each run in a folder of shards, as tuples of trials, without empty states."""
    states: dict[str, set[tuple[Any, ...]]] = {}
    for path in sorted(folder.glob("*/*.jsonl")):
        content = content_at(path)
        if content is not None and content.trials:
            states.setdefault(content.run.key, set()).add(content.trials)
    return states


def content_at(path: Path) -> ShardContent | None:
    """Read a shard; None if it does not exist or has no complete line."""
    if not path.exists():
        return None
    try:
        return read_shard(path)
    except StoreError as error:
        assert "holds no run" in str(error), error
        return None


def append_arguments(folder: Path) -> list[str]:
    return ["append", str(folder / "work/shards")]


def appended_stand(folder: Path, ended: Ended) -> None:
    content = content_at(shard_path(folder / "work/shards", run_of(CONV)))
    kinds = Counter(text.split()[0] for text in ended.acknowledged)
    trials, confirmations = (content.trials, content.confirmations) if content else ((), ())
    require(
        [trial.measurement.latency_s for trial in trials] == list(LATENCIES_S[: len(trials)]), "other trials are there"
    )
    confirmed_s = [each.measurement.latency_s for each in confirmations]
    require(confirmed_s == list(CONFIRMED_S[: len(confirmations)]), "other confirmations are there")
    require(kinds["trial"] <= len(trials), f"{kinds['trial']} were acknowledged and {len(trials)} are there")
    require(kinds["confirmation"] <= len(confirmations), "an acknowledged confirmation is gone")
    is_complete = (len(trials), len(confirmations)) == (len(LATENCIES_S), len(CONFIRMED_S))
    require(ended.status != 0 or is_complete, "success was reported, and something is missing")


def appended_all(folder: Path) -> None:
    content = read_shard(shard_path(folder / "work/shards", run_of(CONV)))
    found = len(content.trials), len(content.confirmations)
    require(found == (len(LATENCIES_S), len(CONFIRMED_S)), f"{found} trials and confirmations are there")


def begin(folder: Path) -> None:
    """Store a first trial and, as after a crash, half of the next line."""
    with Shard.open(folder / "work/shards", run_of(CONV), CONV) as shard:
        shard.append_trial(Project.trial_of(0, LATENCIES_S[0], CONV.workload.flop))
    with shard.path.open("ab") as file:
        file.write(b'{"kind":"iteration","number":1,"lo')


def merge_arguments(folder: Path) -> list[str]:
    project = Project(folder)
    options = ["--spec", str(folder / "models.yaml"), "--shards", str(project.shards), "--database"]
    return ["merge", *options, str(project.database), str(folder / "builds/net-cpu")]


def fill(folder: Path) -> None:
    project = Project(folder)
    project.tune(run_of(CONV), CONV, [4e-3, None, 2e-3], [2.1e-3])
    project.tune(run_of(DENSE), DENSE, [None])
    project.extract("net", [(CONV, 4), (DENSE, 1)])
    project.compile("net", [(CONV, 4, run_of(CONV)), (DENSE, 1, None)])


def grow(folder: Path) -> None:
    """Merge, and append afterwards."""
    fill(folder)
    project = Project(folder)
    project.merge()
    project.tune(run_of(CONV), CONV, [1e-3])
    project.tune(run_of(CONV, seed=1), CONV, [3e-3])


def grow_and_write(folder: Path) -> None:
    """Also add a run without a shard and a table of the user to the database."""
    grow(folder)
    project = Project(folder)
    shard_path(project.shards, run_of(DENSE)).unlink()
    with closing(sqlite3.connect(project.database)) as connection:
        connection.executescript("create table note (text); insert into note values ('mine')")


def dump_or_none(database: Path) -> dict[str, list[tuple[Any, ...]]] | None:
    return dump_of(database) if database.exists() else None


def two_machines(folder: Path) -> None:
    """Let another machine continue one run, tune another run differently, and tune a third one that is new here."""
    there = Project(folder)
    there.shards = folder / "there"
    here = Project(folder)
    here.shards = folder / "here"
    here.tune(run_of(CONV), CONV, [4e-3, None], [3.9e-3])
    here.tune(run_of(DENSE), DENSE, [7e-3, 6e-3])
    shutil.copytree(here.shards, there.shards)
    shard_path(there.shards, run_of(DENSE)).unlink()
    there.tune(run_of(CONV), CONV, [1e-3])
    there.tune(run_of(DENSE), DENSE, [5e-3, 4e-3, 3e-3])
    there.tune(run_of(CONV, seed=1), CONV, [2e-3])
    there.merge()


def scenario(name: str, sample: Path) -> Scenario:
    """Return a scenario; `sample` is a folder with the project before and after the command."""
    if name.startswith("append"):
        prepare = begin if name == "append after a truncated line" else lambda folder: None
        return Scenario(prepare, append_arguments, appended_stand, appended_all)
    if name.startswith("merge"):
        prepare = {"merge into nothing": fill, "merge again": grow, "merge and rebuild": grow_and_write}[name]
        path = "db/tuning.sqlite"
        expected: list[Any] = []
        differs: list[Path] = []

        def databases() -> list[Any]:
            expected[:] = expected or [dump_or_none(sample / each / path) for each in ("before", "after")]
            return expected

        def standing(folder: Path, ended: Ended) -> None:
            allowed = databases()[1:] if ended.status == 0 else databases()
            differs[:] = [] if dump_or_none(folder / path) in allowed else [folder]
            if differs:
                # SQLite may report an unreadable page as malformed; only its check of tables distinguishes the two.
                aside = [*(folder / "db").glob("tuning.sqlite.damaged-*")]
                is_reported = "the old file was kept as" in ended.error and "unable to get the page" not in ended.error
                require(bool(aside) and is_reported, "the database is neither the old nor the new one")
                require(dump_of(aside[0]) == databases()[0], "the file that was kept is not the old database")

        def complete(folder: Path) -> None:
            require(bool(differs) or dump_of(folder / path) == databases()[1], "the database does not match the shards")
            left = [path.name for path in (folder / "db").iterdir() if ".tmp" in path.name or "-journal" in path.name]
            require(not left, f"{left} are left next to the database")

        return Scenario(prepare, merge_arguments, standing, complete)

    def stand(folder: Path, ended: Ended) -> None:
        before, after = trials_of(sample / "before/here"), trials_of(sample / "after/here")
        found = trials_of(folder / "here")
        for run, states in before.items():
            kept = {state[: len(each)] for each in states for state in found.get(run, set())}
            require(states <= kept, f"the local trials of the run {run} are gone")
        allowed = {run: before.get(run, set()) | after[run] for run in after}
        require(all(states <= allowed[run] for run, states in found.items()), "there are unknown trials")
        require(ended.status != 0 or found == after, "success was reported, and trials are missing")

    def imported(folder: Path) -> None:
        require(trials_of(folder / "here") == trials_of(sample / "after/here"), "trials are missing")

    def arguments(folder: Path) -> list[str]:
        there = "db/tuning.sqlite" if name == "import a database" else "there"
        return ["import", str(folder / there), "--shards", str(folder / "here")]

    return Scenario(two_machines, arguments, stand, imported)


SCENARIOS = (
    "append to nothing",
    "append after a truncated line",
    "merge into nothing",
    "merge again",
    "merge and rebuild",
    "import a folder",
    "import a database",
)


@dataclass(frozen=True)
class Recorded:
    """The record of a scenario without a fault, and the disk before the command."""

    scenario: Scenario
    calls: tuple[Call, ...]
    entries: tuple[Entry, ...]
    disk: Disk


def fill_both(driver: Driver, name: str, folder: Path) -> Recorded:
    """Fill the folders ``before`` and ``after`` with a scenario's project before and after the command."""
    wanted = scenario(name, folder)
    (folder / "before").mkdir()
    wanted.prepare(folder / "before")
    shutil.copytree(folder / "before", folder / "now")
    disk = Disk(folder / "now")
    clean = driver.run(wanted.arguments(folder / "now"), folder / "now", record=True)
    (folder / "now").rename(folder / "after")
    assert clean.status == 0, clean.error
    return Recorded(wanted, clean.calls, clean.entries, disk)
