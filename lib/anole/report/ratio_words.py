"""In words, which of two builds is faster, and how certain that is."""

from __future__ import annotations

from anole.evaluate.looks import Ratio, Verdict
from anole.words import counted


def ratio_words(ratio: Ratio) -> str:
    """Returns what a ratio of latencies, that of B over that of A, says of B."""
    counts = f"{100 * ratio.threshold:g} %"
    interval = f"[{_percent(ratio.low)}, {_percent(ratio.high)}]" if ratio.rounds else ""
    if not 0 < ratio.low <= ratio.high < float("inf"):
        return f"open: {counted(ratio.rounds, 'round')} cannot tell; give it more --seconds"
    match ratio.verdict:
        case Verdict.SLOWER:
            return f"B is {100 * ratio.value - 100:.1f} % slower {interval}".rstrip()
        case Verdict.FASTER:
            return f"B is {100 - 100 * ratio.value:.1f} % faster {interval}".rstrip()
        case Verdict.EQUAL:
            return f"no difference larger than {counts} {interval}".rstrip()
        case Verdict.OPEN:
            return f"open: B differs by {interval}, which may be more than {counts} or less; give it more --seconds"


def _percent(ratio: float) -> str:
    return f"{100 * ratio - 100:+.1f} %"
