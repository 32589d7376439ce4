"""`anole compare`: which of two builds is faster."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import click

from anole.commands import candidates
from anole.commands.shared import PATH, show, without_torch


@click.command(epilog="Example: anole compare before/builds builds --threshold 2 --seconds 120")
@click.argument("first", metavar="A", type=PATH, shell_complete=candidates.build_folders)
@click.argument("second", metavar="B", type=PATH, shell_complete=candidates.build_folders)
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Longest time for a pair.  [default: 60]")
@click.option("--rounds", type=click.IntRange(1), help="Most rounds for a pair, instead of a longest time.")
@click.option(
    "--threshold",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Percent from which on a difference counts.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    default=3e-4,
    show_default=True,
    help="How far the outputs may be apart, relative to their norm.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def compare(
    context: click.Context,
    first: Path,
    second: Path,
    seconds: float | None,
    rounds: int | None,
    threshold: float,
    tolerance: float,
    as_json: bool,
) -> None:
    """Tell whether build B is slower than build A.

    A and B are folders of builds, or folders that hold builds of the same names. Both run in turns on the same random
    inputs, until it is clear whether their latencies differ by more than --threshold percent, or the time is up.

    The exit code is 1 if a B is slower by more than that, with at least 99 % certainty; 0 if none is; and 2 if builds
    cannot be compared, for instance because their outputs differ.
    """
    if seconds is not None and rounds is not None:
        raise click.UsageError("give --seconds or --rounds, not both")
    without_torch()
    from anole.evaluate.timing.sequential import ALPHA, Verdict
    from anole.report.compare import Rules, compare_builds, pairs_of, render_compared

    limits = (seconds or 60.0, 1000) if rounds is None else (float("inf"), rounds)
    rules, pairs = Rules(threshold / 100, tolerance, *limits), pairs_of(first, second)
    found = []
    for name, (one, other) in pairs.items():
        # All verdicts together are wrong no more often than one alone.
        found.append(compare_builds(name, one, other, rules, ALPHA / len(pairs)))
        if not as_json:
            show(render_compared(found[-1], (one, other)))
    if as_json:
        click.echo(json.dumps([compared.to_json() for compared in found], indent=1))
    elif len(found) > 1:
        counts = Counter(compared.ratio.verdict.value for compared in found)
        click.echo(f"{len(found)} pairs: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}")
    context.exit(int(any(compared.ratio.verdict is Verdict.SLOWER for compared in found)))
