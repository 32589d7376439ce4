"""The figures of a report that the next one compares its own with; they lie in the page itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from anole.files import read_regular
from anole.keys import canonical_json
from anole.plain import Misfit, from_plain, parse_json, to_plain
from anole.record import utc_now
from anole.report.pages.database import Database

ELEMENT = "anole-figures"
"""The id of the page's element that holds them."""

_PATTERN = re.compile(rf'<script type="application/json" id="{ELEMENT}">(.*?)</script>', re.DOTALL)


@dataclass(frozen=True)
class Beside:
    """A build beside a reference.

    Attributes:
        speedup: the reference's latency over the build's.
        low, high: the quartiles of the rounds' speedups; None if they are not recorded.
    """

    reference: str
    speedup: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class BuildFigures:
    """What a report said of a build.

    Attributes:
        name: its name.
        created_at: when it was compiled.
        latency_s, latency_std_s: of one run; None if it was not evaluated. Of a simulator, the deviation is 0.
        references: in the order of their names.
    """

    name: str
    created_at: str
    latency_s: float | None
    latency_std_s: float | None
    size_bytes: int | None
    coverage_flop_share: float
    references: tuple[Beside, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """The figures of one report.

    Attributes:
        made_at: when it was made.
        builds: in the order of their names.
        trials: how many trials the database held.
    """

    made_at: str
    builds: tuple[BuildFigures, ...]
    trials: int

    def to_json(self) -> str:
        """Returns the text that `read_snapshot` reads."""
        return canonical_json(to_plain(self))


SQL = """
select
    build.name,
    build.created_at,
    min(evaluation.latency_s) as latency_s,
    evaluation.latency_std_s,
    build.size_bytes,
    build.coverage_flop_share
from build
left join evaluation on evaluation.build = build.name and evaluation.created_at >= build.created_at
group by build.name
order by build.name
"""


BESIDE = """
select build.name as build, evaluation.reference, evaluation.speedup, evaluation.speedup_low, evaluation.speedup_high
from evaluation
join build on build.name = evaluation.build
where evaluation.created_at >= build.created_at
order by build.name, evaluation.reference
"""


def snapshot_of(database: Database) -> Snapshot:
    """Returns the figures of today."""
    ((trials,),) = database.query("select count(*) from trial").rows
    beside: dict[str, list[Beside]] = {}
    for build, *figures in database.query(BESIDE).rows:
        beside.setdefault(build, []).append(Beside(*figures))
    builds = (
        BuildFigures(**row, references=tuple(beside.get(row["name"], ()))) for row in database.query(SQL).records()
    )
    return Snapshot(utc_now(), tuple(builds), trials)


def is_another_file(page: Path) -> bool:
    """Returns whether a file is there that no report wrote."""
    try:
        content = read_regular(page)
    except OSError:
        return False
    return bool(content) and f'id="{ELEMENT}"'.encode() not in content


def read_snapshot(page: Path) -> Snapshot | None:
    """Returns the figures that an earlier report holds; None if the file is none."""
    try:
        found = _PATTERN.search(read_regular(page).decode(errors="replace"))
        return None if found is None else from_plain(Snapshot, parse_json(found[1].encode()))
    except (OSError, ValueError, Misfit):
        return None
