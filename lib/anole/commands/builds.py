"""Commands for builds: try, run, profile, compare and export."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click

from anole.commands import candidates
from anole.commands.shared import AS_JSON, PATH, block_torch, block_torch_for, guard_process, show


@click.command(name="try", epilog="Example: anole try model.onnx --dim batch=1 --dim tokens=16..512")
@click.argument("model")
@click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE", help="Size or range of an ONNX file's dimension.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=SHAPE", help="Shape of an input: x=1,3,224,224.")
@click.option("--precision", help="Precision of the target, such as bfloat16.")
@click.option("--threads", type=click.IntRange(1), help="Threads of the build.  [default: all cores]")
@click.option("--trials", type=click.IntRange(0), default=0, show_default=True, help="Configs to measure per layer.")
@click.option("--project", type=PATH, help="Project folder.  [default: in the user's cache folder]")
def try_(
    model: str,
    dims: tuple[str, ...],
    inputs: tuple[str, ...],
    precision: str | None,
    threads: int | None,
    trials: int,
    project: Path | None,
) -> None:
    """Build MODEL with default configs, and compare it with ONNX Runtime and PyTorch.

    MODEL is an ONNX file, a factory of a torch module (module:function), or torchvision:NAME. Nothing is written into
    the current folder.
    """
    block_torch()
    from anole.api.compiled import Compiled
    from anole.api.sources import of_text
    from anole.api.workspace import Workspace
    from anole.documents import layout
    from anole.text_format import pluralize

    # A factory's module may be in this folder.
    sys.path.insert(0, os.getcwd())
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.getcwd(), os.environ.get("PYTHONPATH"))))
    workspace = Workspace(project)
    source = of_text(model, _pairs("--dim", dims), _pairs("--input", inputs))
    settings = {"precision": precision, "threads": threads}
    target = {"kind": "cpu", **{name: value for name, value in settings.items() if value is not None}}
    with workspace.locked():
        build = workspace.add(source.name, source.entry, target, trials)
        compiled = Compiled(workspace.run(layout.build_path(build), progress=True))
    click.echo(f"\n{model}: {pluralize(len(compiled.tasks), 'distinct layer')} to tune")
    click.echo(repr(compiled))
    click.echo(f"\n{compiled.benchmark()}\n\nNext:")
    click.echo(f"  anole try {model} --trials 64  tune every layer\n  anole init FOLDER  start a project")
    click.echo(f"  anole run {compiled.folder} --random  run the build")


def _pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = dict(text.partition("=")[::2] for text in texts)
    if wrong := [text for text in texts if not text.partition("=")[2]]:
        raise click.UsageError(f"{option} {wrong[0]}: write NAME=VALUE")
    return pairs


@click.command(epilog="Example: anole run builds/resnet18-cpu-anole --input image.npy --output scores.npy")
@click.argument("folder", type=PATH, shell_complete=candidates.build_folders)
@click.option(
    "--input",
    "inputs",
    type=PATH,
    multiple=True,
    help="A .npy file for each input, in order, or one .npz file with all inputs by name.",
)
@click.option("--random", is_flag=True, help="Run on random inputs; with seed 0, those of `anole evaluate`.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the random inputs.  [default: 0]")
@click.option("--output", type=PATH, help="File for the outputs: .npz or .npy.")
def run(folder: Path, inputs: tuple[Path, ...], random: bool, seed: int | None, output: Path | None) -> None:
    """Run the build in FOLDER on given or random inputs.

    The build runs on its device, or in the simulator if it is for an accelerator. Without --input and --random, the
    command only prints the names, types and shapes of the build's inputs and outputs.
    """
    from anole.report.run import describe_build, run_build

    if random and inputs:
        raise click.UsageError("give --input or --random, not both")
    if seed is not None and not random:
        raise click.UsageError("--seed requires --random")
    if not random and not inputs:
        if output is not None:
            raise click.UsageError("--output requires --input or --random")
        click.echo(describe_build(folder))
        return
    block_torch()
    for name, array in run_build(folder, inputs, output, seed or 0).items():
        click.echo(f"{name}: {array.dtype} {list(array.shape)}, {_preview(array)}")


def _preview(array: Any) -> str:
    """Format the first values of an array."""
    values = array.ravel()[:5]
    return ", ".join(f"{value:.6g}" for value in values) + (", ..." if array.size > len(values) else "")


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
    profiled = profile_build(folder, seconds)
    if as_json:
        click.echo(json.dumps(profiled.to_json(), indent=1))
    else:
        show(render_profile(profiled))


@click.command(epilog="Example: anole compare before/builds builds --threshold 2 --seconds 120")
@click.argument("first", metavar="A", type=PATH, shell_complete=candidates.build_folders)
@click.argument("second", metavar="B", type=PATH, shell_complete=candidates.build_folders)
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Maximum time per pair.  [default: 60]")
@click.option("--rounds", type=click.IntRange(1), help="Maximum rounds per pair, instead of a time limit.")
@click.option(
    "--threshold",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Slowdown, in percent, that counts as slower.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    default=3e-4,
    show_default=True,
    help="Maximum distance between the outputs, relative to their norm.",
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

    A and B are builds, or folders that hold builds with the same names. They take turns on the same random inputs
    until it is clear whether their latencies differ by more than --threshold percent, or the time is up.

    The exit code is 1 if any B is slower by more than the threshold, with at least 99 % confidence; 0 if none is; and 2
    if builds cannot be compared, for example because their outputs differ.
    """
    if seconds is not None and rounds is not None:
        raise click.UsageError("give --seconds or --rounds, not both")
    block_torch()
    from anole.evaluate.timing.sequential import ALPHA, Verdict
    from anole.report.compare import Rules, compare_builds, pair_builds, render_compared

    limits = (seconds or 60.0, 1000) if rounds is None else (float("inf"), rounds)
    rules, pairs = Rules(threshold / 100, tolerance, *limits), pair_builds(first, second)
    comparisons = []
    for name, (build_a, build_b) in pairs.items():
        # Bonferroni correction: the error rate holds for all verdicts together.
        comparisons.append(compare_builds(name, build_a, build_b, rules, ALPHA / len(pairs)))
        if not as_json:
            show(render_compared(comparisons[-1], (build_a, build_b)))
    if as_json:
        click.echo(json.dumps([comparison.to_json() for comparison in comparisons], indent=1))
    elif len(comparisons) > 1:
        counts = Counter(comparison.ratio.verdict.value for comparison in comparisons)
        click.echo(f"{len(comparisons)} pairs: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}")
    context.exit(int(any(comparison.ratio.verdict is Verdict.SLOWER for comparison in comparisons)))


@click.command(epilog="Example: anole export builds/resnet18-cpu-anole --to resnet18 --weights file")
@click.argument("folder", type=PATH, shell_complete=candidates.build_folders)
@click.option("--to", "output", type=PATH, required=True, help="Output folder; an existing library is replaced.")
@click.option(
    "--weights",
    type=click.Choice(["library", "file"]),
    default="library",
    show_default=True,
    help="Where to store the weights: in the library, or in a memory-mapped file next to it.",
)
@click.option(
    "--level",
    "levels",
    multiple=True,
    help="Instruction set: tuned, x86-64-v4, x86-64-v3 or x86-64-v2; may be repeated.  [default: all]",
)
@click.option("--prefix", default="network", show_default=True, help="Prefix for function and file names.")
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
        exportable = ", ".join(name for name, usable in usable_kinds().items() if usable.exporter)
        raise ExportError(f"{folder}: this build is for {kind}; only builds for {exportable} can be exported")
    named_object(exporter)(folder, output, weights == "library", levels, prefix)
