"""Summarize cases of operators: right ones are counted, all others are named with their reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from kit.cases import Outcome

COLUMNS = ("operator", "outcome", "reason", "count", "cases")


def summarized(results: Iterable[tuple[str, str, Outcome]]) -> Iterator[dict[str, object]]:
    """Yield a row for each outcome and reason of each operator, from operators, names of cases and outcomes."""
    for operator, found in groupby(results, key=itemgetter(0)):
        cases: dict[Outcome, list[str]] = {}
        for _, case, outcome in found:
            cases.setdefault(outcome, []).append(case)
        for outcome, names in cases.items():
            named = "" if outcome.outcome == "right" else " ".join(names)
            yield {"operator": operator, **outcome._asdict(), "count": len(names), "cases": named}
