"""A summary of operator cases: counts of right ones, and names and reasons of all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from kit.cases import Outcome

COLUMNS = ("operator", "outcome", "reason", "count", "cases")


def summarize(results: Iterable[tuple[str, str, Outcome]]) -> Iterator[dict[str, object]]:
    """Yield a row for each operator, outcome and reason, from tuples of operator, case name and outcome."""
    for operator, group in groupby(results, key=itemgetter(0)):
        cases: dict[Outcome, list[str]] = {}
        for _, case, outcome in group:
            cases.setdefault(outcome, []).append(case)
        for outcome, names in cases.items():
            shown_names = "" if outcome.outcome == "right" else " ".join(names)
            yield {"operator": operator, **outcome._asdict(), "count": len(names), "cases": shown_names}
