"""The sections of the report, in the order of the page."""

from __future__ import annotations

from anole.report.cookbook import cookbook, read_recipes
from anole.report.pages import held_back
from anole.report.pages.figure import READERS, Section
from anole.report.pages.preset_pairs import section_of_pairs
from anole.report.pages.recipes import section_of
from anole.targets import usable_kinds
from anole.targets.base import named_object

_DEPLOYMENT = ("speedup", "build_sizes", "latency_under_load", "slowest_kernels", "roofline", "untuned_layers")
_RESEARCH = ("best_over_trials", "best_over_seconds", "preset_costs")
_MORE_RESEARCH = ("trial_outcomes", "failures_by_reason", "batch_sizes", "rank_correlations")


def all_sections() -> list[Section]:
    """Returns Anole's own sections and those that kinds of targets add, reader by reader."""
    recipes = read_recipes(cookbook())
    own = [
        *(section_of(recipes[name], "deployment") for name in _DEPLOYMENT),
        held_back.SECTION,
        *(section_of(recipes[name], "research") for name in _RESEARCH),
        section_of_pairs(recipes["preset_pairs"], "research"),
        *(section_of(recipes[name], "research") for name in _MORE_RESEARCH),
    ]
    added = [named_object(place) for kind in usable_kinds() for place in kind.sections]
    return sorted([*own, *added], key=lambda section: list(READERS).index(section.reader))
