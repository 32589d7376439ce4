"""Commands for comparing search methods: anole bench list, run, plot and export."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import click

from anole.commands.shared import PATH, show

_SPLIT = click.option("--split", type=click.Choice(["dev", "test"]), help="Only problems of this split.")


@click.group(epilog="Example: anole bench run --optimizer anole --problem 'vta_open/*' --out runs.csv")
def bench() -> None:
    """Compare search methods where the optimum is known."""


@bench.command("list", epilog="Example: anole bench list --split dev")
@_SPLIT
def list_(split: str | None) -> None:
    """Print the names of all problems."""
    from anole.bench import names

    for name in names(split):
        click.echo(name)


@bench.command(epilog="Example: anole bench run --optimizer anole --optimizer smac --problem 'vta/*' --out runs.csv")
@click.option(
    "--optimizer",
    "optimizers",
    multiple=True,
    required=True,
    help="A preset, optuna:TPESampler, smac, nevergrad:NGOpt, kernel_tuner:genetic_algorithm, or others of these.",
)
@click.option("--problem", "problems", multiple=True, default=["*"], help="A name, a pattern of names or a T4 file.")
@_SPLIT
@click.option("--trials", type=click.IntRange(1), default=128, show_default=True, help="Trials of each run.")
@click.option("--seeds", type=click.IntRange(1), default=4, show_default=True, help="Runs on each problem.")
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True, help="Parallel runs.")
@click.option("--out", type=PATH, required=True, help="CSV file, to which each run appends a row when it ends.")
def run(
    optimizers: Sequence[str],
    problems: Sequence[str],
    split: str | None,
    trials: int,
    seeds: int,
    processes: int,
    out: Path,
) -> None:
    """Run optimizers, and print a leaderboard.

    A later call with the same file continues. The score is the mean share of the gap between random search and the
    optimum that an optimizer closes; higher is better.
    """
    from rich.table import Table

    from anole.bench import names
    from anole.bench.runs import leaderboard, read_runs, run_all

    known = names(split)
    chosen = [found for each in problems for found in ([n for n in known if fnmatch(n, each)] or [each])]
    for line in run_all(optimizers, list(dict.fromkeys(chosen)), trials, seeds, out, processes):
        click.echo(line, err=True)
    table = Table("optimizer", "score", "95 % interval", "cost / optimum", "CPU s", "runs")
    for each in leaderboard(read_runs(out)):
        interval = f"{each.low:.3f} to {each.high:.3f}"
        figures = (f"{each.score:.3f}", interval, f"{each.ratio:.3f}", f"{each.cpu_s:.1f}", str(each.n_runs))
        table.add_row(each.optimizer, *figures)
    show(table)


@bench.command(epilog="Example: anole bench plot runs.csv runs.svg")
@click.argument("runs", type=PATH)
@click.argument("picture", type=PATH)
def plot(runs: Path, picture: Path) -> None:
    """Plot the curves of RUNS, a file of anole bench run, as the SVG file PICTURE."""
    from anole.bench.picture import draw, points_of_runs
    from anole.bench.runs import read_runs

    draw(points_of_runs(read_runs(runs)), picture)


@bench.command(epilog="Example: anole bench export vta/64-64_k3x3_s1_56x56 --format t4 --folder tables")
@click.argument("problems", nargs=-1, required=True)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["t4", "parquet"]),
    default="t4",
    show_default=True,
    help="T1 and T4 files as in Kernel Tuner's benchmark hub, or Parquet.",
)
@click.option("--folder", type=PATH, default=Path(), help="Folder of the files.  [default: the current folder]")
def export(problems: Sequence[str], format_: str, folder: Path) -> None:
    """Write PROBLEMS as files for other tools."""
    from anole.bench import load
    from anole.bench.t4 import write_parquet, write_t4

    for name in problems:
        for path in (write_t4 if format_ == "t4" else write_parquet)(load(name), folder):
            click.echo(path)
