"""In words, which of two builds is faster, and how certain that is."""

from __future__ import annotations

from anole.evaluate.looks import Ratio, Verdict


def ratio_words(ratio: Ratio) -> str:
    """Returns what a ratio of latencies, that of B over that of A, says of B."""
    counts = f"{100 * ratio.threshold:g} %"
    interval = f"[{_percent(ratio.low)}, {_percent(ratio.high)}]" if ratio.rounds else ""
    if not 0 < ratio.low <= ratio.high < float("inf"):
        return f"open: {ratio.rounds} rounds are too few to tell; give it more time"
    match ratio.verdict:
        case Verdict.SLOWER:
            return f"B is {100 * ratio.value - 100:.1f} % slower {interval}".rstrip()
        case Verdict.FASTER:
            return f"B is {100 - 100 * ratio.value:.1f} % faster {interval}".rstrip()
        case Verdict.EQUAL:
            return f"no difference larger than {counts} {interval}".rstrip()
        case Verdict.OPEN:
            return f"open: B differs by {interval}, which may be more than {counts} or less; give it more time"


def latency_words(seconds: float) -> str:
    """Returns a latency with its unit."""
    return f"{1e3 * seconds:.4g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.4g} us"


def _percent(ratio: float) -> str:
    return f"{100 * ratio - 100:+.1f} %"
