"""Commands for builds: run, profile, compare and export."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click

from anole.commands import candidates
from anole.commands.shared import AS_JSON, PATH, block_torch, block_torch_for, guard_process, show


@click.command(epilog="Example: anole run builds/resnet18-cpu-anole --input image.npy --output scores.npy")
@click.argument("folder", type=PATH, shell_complete=candidates.build_folders)
@click.option(
    "--input",
    "inputs",
    type=PATH,
    multiple=True,
    help="A .npy file for each input, in order, or one .npz file with all inputs by name.",
)
@click.option("--random", is_flag=True, help="Run it on random inputs; seed 0 gives the inputs of `anole evaluate`.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the random inputs.  [default: 0]")
@click.option("--output", type=PATH, help="File for the outputs: .npz or .npy.")
def run(folder: Path, inputs: tuple[Path, ...], random: bool, seed: int | None, output: Path | None) -> None:
    """Run the build in FOLDER on given or random inputs.

    It runs on its device, or on the simulator if it is for an accelerator. Without --input and --random nothing runs,
    and the names, types and shapes of its inputs and outputs are printed.
    """
    from anole.report.run import describe_build, run_build

    if random and inputs:
        raise click.UsageError("give --input or --random, not both")
    if seed is not None and not random:
        raise click.UsageError("--seed needs --random")
    if not random and not inputs:
        if output is not None:
            raise click.UsageError("--output needs --input or --random")
        click.echo(describe_build(folder))
        return
    block_torch()
    for name, array in run_build(folder, inputs, output, seed or 0).items():
        click.echo(f"{name}: {array.dtype} {list(array.shape)}, {_shown(array)}")


def _shown(array: Any) -> str:
    """Return the first values of an array as text."""
    first = array.ravel()[:5]
    return ", ".join(f"{number:.6g}" for number in first) + (", ..." if array.size > len(first) else "")


@click.command(epilog="Example: anole profile builds/resnet18-cpu-anole --seconds 2")
@click.argument("folder", type=PATH, shell_complete=candidates.build_folders)
@click.option("--seconds", type=click.FloatRange(0), default=5, show_default=True, help="How long to measure.")
@AS_JSON
def profile(folder: Path, seconds: float, as_json: bool) -> None:
    """Time every kernel of the build in FOLDER.

    The profile compares each kernel with the machine's roofline.
    """
    from anole.report.profile import profile_build, render_profile

    block_torch()
    made = profile_build(folder, seconds)
    if as_json:
        click.echo(json.dumps(made.to_json(), indent=1))
    else:
        show(render_profile(made))


@click.command(epilog="Example: anole compare before/builds builds --threshold 2 --seconds 120")
@click.argument("first", metavar="A", type=PATH, shell_complete=candidates.build_folders)
@click.argument("second", metavar="B", type=PATH, shell_complete=candidates.build_folders)
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Maximum time for a pair.  [default: 60]")
@click.option("--rounds", type=click.IntRange(1), help="Maximum number of rounds for a pair, instead of a time limit.")
@click.option(
    "--threshold",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Difference that counts as slower, in percent.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    default=3e-4,
    show_default=True,
    help="Maximum distance of the outputs, relative to their norm.",
)
@AS_JSON
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
    """Test whether build B is slower than build A.

    A and B are builds, or folders that hold builds with the same names. They run alternately on the same random inputs,
    until it is clear whether their latencies differ by more than --threshold percent, or the time is up.

    The exit code is 1 if any B is slower by more than the threshold, with at least 99 % confidence; 0 if none is; and 2
    if builds cannot be compared, for example because their outputs differ.
    """
    if seconds is not None and rounds is not None:
        raise click.UsageError("give --seconds or --rounds, not both")
    block_torch()
    from anole.evaluate.timing.sequential import ALPHA, Verdict
    from anole.report.compare import Rules, compare_builds, pairs_of, render_compared

    limits = (seconds or 60.0, 1000) if rounds is None else (float("inf"), rounds)
    rules, pairs = Rules(threshold / 100, tolerance, *limits), pairs_of(first, second)
    found = []
    for name, (one, other) in pairs.items():
        # Bonferroni correction: the error rate holds for all verdicts together.
        found.append(compare_builds(name, one, other, rules, ALPHA / len(pairs)))
        if not as_json:
            show(render_compared(found[-1], (one, other)))
    if as_json:
        click.echo(json.dumps([compared.to_json() for compared in found], indent=1))
    elif len(found) > 1:
        counts = Counter(compared.ratio.verdict.value for compared in found)
        click.echo(f"{len(found)} pairs: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}")
    context.exit(int(any(compared.ratio.verdict is Verdict.SLOWER for compared in found)))


@click.command(epilog="Example: anole export builds/resnet18-cpu-anole --to resnet18 --weights file")
@click.argument("folder", type=PATH, shell_complete=candidates.build_folders)
@click.option("--to", "output", type=PATH, required=True, help="Folder of the library; replaces an existing one.")
@click.option(
    "--weights",
    type=click.Choice(["library", "file"]),
    default="library",
    show_default=True,
    help="Where the weights go: into the library, or into a memory-mapped file next to it.",
)
@click.option(
    "--level",
    "levels",
    multiple=True,
    help="Instruction set: tuned, x86-64-v4, x86-64-v3 or x86-64-v2; may be repeated.  [default: all]",
)
@click.option("--prefix", default="network", show_default=True, help="Prefix of the names of functions and files.")
def export(folder: Path, output: Path, weights: str, levels: tuple[str, ...], prefix: str) -> None:
    """Export the build in FOLDER as a C library.

    The library needs neither TVM nor Python. Only builds for a CPU can be exported.
    """
    guard_process(f"build {folder.name}")
    from anole.documents.build import read_build
    from anole.errors import ExportError
    from anole.targets import kind_of, usable_kinds
    from anole.targets.base import named_object

    build = read_build(folder)
    block_torch_for(build.model_spec)
    exporter = kind_of(build.target_description).exporter
    if exporter is None:
        kind = build.target_description["kind"]
        others = ", ".join(name for name, each in usable_kinds().items() if each.exporter)
        raise ExportError(f"{folder}: found a build for {kind}; only builds for {others} can be exported")
    named_object(exporter)(folder, output, weights == "library", levels, prefix)
