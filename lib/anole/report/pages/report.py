"""Write the report of a project: collect the figures of every section from its records, and render them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import geometric_mean

from anole.errors import StoreError
from anole.files import read_regular, write_atomically
from anole.record import utc_now
from anole.report.cookbook import cookbook, read_recipes
from anole.report.pages import unfinished_builds
from anole.report.pages.database import Database, OutdatedDatabaseError
from anole.report.pages.figure import READERS, MissingData, ReportSource, Section, Shown
from anole.report.pages.page import TITLE_END, Page, render
from anole.report.pages.preset_pairs import pairs_section
from anole.report.pages.recipes import section_of
from anole.targets import usable_kinds
from anole.targets.base import named_object
from anole.text_format import format_names, pluralize, times

_DEPLOYMENT = (
    *("speedup", "latency_by_size", "build_sizes", "latency_under_load"),
    *("slowest_kernels", "roofline", "untuned_layers"),
)
_RESEARCH = ("best_over_trials", "best_over_seconds", "preset_costs")
_MORE_RESEARCH = ("trial_outcomes", "failures_by_reason", "batch_sizes", "rank_correlations")

_COUNT_QUERIES = {
    "build": "select count(*) from build",
    "model": "select count(*) from model",
    "task": "select count(*) from task",
    "trial": "select count(*) from trial",
    "preset": "select count(distinct preset) from run",
}

_BUILDS = "select model, target from build order by name"

_MAX_NAMED = 3
"""The maximum number of models that the title names."""

_VERSION_CHECK = "select speedup_low, speedup_high from evaluation limit 0"
"""A query that fails on a database that is too old for most sections."""

_SPEEDUP_QUERY = "select reference, speedup from model_latency order by reference"


def write_report(database: Path, output: Path, project: Path, spec: Path | None) -> None:
    """Write the report of a project to a file, replacing an existing report.

    `project` is the folder with the builds and logs, `spec` its models.yaml, if there is one.

    Raises:
        StoreError: the database is missing or cannot be read, or the output exists and is not a report.
    """
    if _is_another_file(output):
        raise StoreError(f"{output}: is not a report of Anole, so was not overwritten; `--output` names another file")
    with Database(database) as db:
        db.query(_VERSION_CHECK)
        source = ReportSource(db, project, spec)
        page = Page(
            title=_title(db),
            facts=f"Made by Anole{_version()} from {database.name} on "
            f"{utc_now()[:16].replace('T', ' ')} UTC. This file is self-contained.",
            tiles=_tiles(db),
            sections=[(section, figures_of(section, source)) for section in all_sections()],
        )
    write_atomically(output, render(page))


def all_sections() -> list[Section]:
    """Return Anole's sections and the sections of kinds of targets, ordered by audience."""
    recipes = read_recipes(cookbook())
    own_sections = [
        *(section_of(recipes[name], "deployment") for name in _DEPLOYMENT),
        unfinished_builds.SECTION,
        *(section_of(recipes[name], "research") for name in _RESEARCH),
        pairs_section(recipes["preset_pairs"], "research"),
        *(section_of(recipes[name], "research") for name in _MORE_RESEARCH),
    ]
    target_sections = [named_object(path) for kind in usable_kinds().values() for path in kind.sections]
    return sorted([*own_sections, *target_sections], key=lambda section: list(READERS).index(section.reader))


def _is_another_file(page: Path) -> bool:
    """Whether a file exists that is not a report."""
    try:
        content = read_regular(page)
    except OSError:
        return False
    return bool(content) and TITLE_END.encode() not in content


def _version() -> str:
    """Return the version after a space; an empty text in a checkout that is not installed."""
    try:
        return f" {version('anole')}"
    except PackageNotFoundError:
        return ""


def figures_of(section: Section, source: ReportSource) -> Sequence[Shown]:
    """Return the figures of a section, or a remedy if the database is too old for it."""
    try:
        return section.make(source)
    except OutdatedDatabaseError as error:
        return [MissingData(section.title, str(error))]


def _title(database: Database) -> str:
    """Return the title: the models, or their number if there are many, and the targets."""
    rows = database.query(_BUILDS).rows
    models, targets = (list(dict.fromkeys(names)) for names in zip(*rows, strict=True)) if rows else ([], [])
    subject = ", ".join(models) if len(models) <= _MAX_NAMED else pluralize(len(models), "model")
    return f"{subject} on {format_names(targets)}" if rows else "Searches"


def _tiles(database: Database) -> Mapping[str, str]:
    """Return the key figures by name."""
    speedups: dict[str, list[float]] = {}
    for reference, speedup in database.query(_SPEEDUP_QUERY).rows:
        speedups.setdefault(reference, []).append(speedup)
    counts = (pluralize(database.query(sql).rows[0][0], noun).split() for noun, sql in _COUNT_QUERIES.items())
    return {
        f"over {reference} (geometric mean of {len(values)})": times(geometric_mean(values))
        for reference, values in speedups.items()
    } | {noun: count for count, noun in counts}
