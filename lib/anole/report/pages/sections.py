"""The sections of the report, in the order of the page."""

from __future__ import annotations

from anole.report.pages import (
    batches,
    builds,
    curves,
    failures,
    held_back,
    kernels,
    predictions,
    tuners,
    under_load,
)
from anole.report.pages.figure import READERS, Section
from anole.targets import usable_kinds
from anole.targets.base import named_object

_OWN = (
    Section("builds", "How fast is each build beside other engines?", "deployment", builds.make),
    Section("load", "How long does a run take on a busy machine?", "deployment", under_load.make),
    Section("kernels", "Where does the time go?", "deployment", kernels.make),
    Section("held-back", "What is held back, and why?", "deployment", held_back.make),
    Section("curves", "How fast do the searches find good configs?", "research", curves.make),
    Section("tuners", "Which tuner is better?", "research", tuners.make),
    Section("failures", "Why do candidates fail?", "research", failures.make),
    Section("batches", "How large are the batches?", "research", batches.make),
    Section("predictions", "How well do surrogates predict?", "research", predictions.make),
)


def all_sections() -> list[Section]:
    """Returns Anole's own sections and those that kinds of targets add, reader by reader."""
    added = [named_object(place) for kind in usable_kinds() for place in kind.sections]
    return sorted([*_OWN, *added], key=lambda section: list(READERS).index(section.reader))
