"""Commands for the stages, which snakemake runs: from models to tasks, builds and the database."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from anole.commands import candidates
from anole.commands.shared import (
    FILES,
    ORDER,
    PATH,
    REQUIRED,
    SPEC,
    Counts,
    Json,
    OrderType,
    block_torch,
    block_torch_for,
    enter_project,
    guard_process,
    require_target,
    show,
    tuning_options,
)
from anole.documents import layout
from anole.quantize import METHODS, TARGET_SQNR_DB

if TYPE_CHECKING:
    from anole.tune.job import TuneOptions


@click.command(epilog="Example: anole describe amd")
@click.argument("target", shell_complete=candidates.targets)
@click.option(
    "--asked", type=Json(), help="The target's kind, settings and nodes, instead of its entry in models.yaml."
)
@click.option("--output", type=PATH, help="File for the description.")
@SPEC
def describe(target: str, asked: Any, output: Path | None, spec: Path) -> None:
    """Describe this node of a cluster as TARGET.

    The project stores the description, so all nodes and the machine that runs the workflow agree on the target.
    """
    from anole.config.reading import load_spec
    from anole.documents.described import write_described
    from anole.node import Node
    from anole.project.hardware import describe_this_machine, hardware_request

    if asked is None:
        (output,) = enter_project(spec, output)
        targets = load_spec(Path(spec.name)).targets
        Node(target, "targets", spec.name).choice(targets, "one of the targets")
        asked = hardware_request(targets[target])
    write_described(output or layout.described_path(target), describe_this_machine(asked))


@click.command(epilog="Example: anole extract resnet18 --target cpu")
@click.argument("model", shell_complete=candidates.models)
@click.option("--target", required=True, shell_complete=candidates.targets, help="Name of the target.")
@click.option("--entry", type=Json(), help="The model's entry, instead of the one in models.yaml.")
@click.option("--target-description", "description", type=Json(), help="Complete description of the target.")
@click.option("--manifest", type=PATH, help="File for the model's list of tasks.  [default: in work/models]")
@click.option("--tasks", type=PATH, help=f"Folder of the tasks.  [default: {layout.TASKS}]")
@FILES
@SPEC
def extract(
    model: str,
    target: str,
    entry: Any,
    description: Any,
    manifest: Path | None,
    tasks: Path | None,
    files: str | None,
    spec: Path,
) -> None:
    """Split MODEL into its distinct tasks for a target.

    MODEL is a name in models.yaml. A task is one distinct layer on one target, which `anole tune` tunes.
    """
    guard_process(f"model {model}")
    from anole.config.entries import ModelSpec
    from anole.extract.stage import extract_model
    from anole.project.pipeline import find_model

    if entry is None or description is None:
        manifest, tasks = enter_project(spec, manifest, tasks)
        model_spec, description, files = find_model(Path(spec.name), model, target)
    else:
        model_spec = ModelSpec.from_json(model, entry)
    block_torch_for(model_spec)
    manifest = manifest or layout.manifest_path(model, target)
    extract_model(model_spec, target, description, manifest, tasks or layout.TASKS, files)


@click.command(epilog="Example: anole quantize resnet18 --float node_Conv_291")
@click.argument("model", shell_complete=candidates.models)
@click.option("--method", type=click.Choice(METHODS), help="Method to choose ranges.  [default: the best method]")
@click.option("--float", "floats", multiple=True, metavar="LAYER", help="Layer to keep in float32; may be repeated.")
@click.option(
    "--target-db",
    "--least-db",
    "target_db",
    type=float,
    default=TARGET_SQNR_DB,
    show_default=True,
    help="Signal-to-noise ratio at which the search for layers to keep in float32 stops, in dB.",
)
@click.option("--entry", type=Json(), help="The model's entry, instead of the one in models.yaml.")
@click.option("--output", type=PATH, help="File to write.  [default: in work/quantized]")
@SPEC
def quantize(
    model: str,
    method: str | None,
    floats: tuple[str, ...],
    target_db: float,
    entry: Any,
    output: Path | None,
    spec: Path,
) -> None:
    """Quantize MODEL to 8 bits, as an ONNX file.

    MODEL is a name in models.yaml. Targets with `precision: int8` use this file. The ranges of values come from the
    model's calibration samples or, without these, from random ones. The command prints the loss of each layer.
    """
    guard_process(f"model {model}")
    from anole.config.entries import ModelSpec
    from anole.config.reading import load_spec
    from anole.node import Node
    from anole.quantize.stage import quantize_model
    from anole.report.tables import render_quantized

    if entry is None:
        (output,) = enter_project(spec, output)
        models = load_spec(Path(spec.name)).models
        Node(model, "models", spec.name).choice(models, "one of the models")
        model_spec = models[model]
    else:
        model_spec = ModelSpec.from_json(model, entry)
    quantized = quantize_model(model_spec, output or layout.quantized_path(model), method, floats, target_db)
    if entry is None and quantized is not None:
        show(render_quantized(model, quantized))


@click.command(epilog="Example: anole tune work/tasks/KEY.json --trials 64")
@click.argument("task", type=PATH)
@tuning_options
@click.option(
    "--trials",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Configs to measure, including recorded ones.",
)
@click.option("--receipt", type=PATH, help="File for the best config.  [default: in work/tuned]")
@click.option("--again", type=click.Choice(["failures"]), help="First repeat recorded trials that failed.")
def tune(task: Path, options: TuneOptions, receipt: Path | None, again: str | None) -> None:
    """Tune TASK, a file that `anole extract` wrote.

    Recorded trials are not measured again, except with `--again failures`, which repeats failures that the machine may
    have caused.
    """
    from anole.tune.stage import tune_task

    tune_task(task, options, receipt, failures_again=again == "failures")


@click.command(
    name="tune-together",
    epilog="Example: anole tune-together work/models/resnet18/cpu.json --trials 512 --receipts tuned.json",
)
@click.argument("manifest", type=PATH)
@tuning_options
@click.option("--trials", type=click.IntRange(1), required=True, help="Configs to measure, for all tasks together.")
@click.option("--seconds", type=click.FloatRange(0), default=math.inf, help="Start no batch after this time.")
@click.option("--tasks", type=PATH, default=layout.TASKS, show_default=True, help="Folder of the tasks.")
@click.option("--receipts", type=PATH, required=True, help="File for the best config of each task.")
def tune_together(manifest: Path, options: TuneOptions, seconds: float, tasks: Path, receipts: Path) -> None:
    """Tune all tasks of MANIFEST with one shared budget.

    `anole extract` writes manifests. The budget is spent on the tasks where it saves the most time.
    """
    from anole.tune.stage import tune_model

    tune_model(manifest, tasks, options, receipts, seconds)


@click.command(epilog="Example: anole refine resnet18-cpu-anole")
@click.argument("build", shell_complete=candidates.builds)
@click.argument("receipts", nargs=-1, type=PATH)
@ORDER
@click.option("--manifest", type=PATH, help="The model's list of tasks, with --order.")
@click.option("--candidates", type=click.IntRange(1), help="Candidates to try for each task, with --order.")
@click.option("--output", type=PATH, help="File for the receipts of the best candidates.  [default: in work/refined]")
@REQUIRED
@SPEC
def refine(
    build: str,
    receipts: tuple[Path, ...],
    order: Any,
    manifest: Path | None,
    candidates: int | None,
    output: Path | None,
    required: bool,
    spec: Path,
) -> None:
    """Choose the fastest candidates within BUILD.

    BUILD is a name in models.yaml. Each candidate is timed within the entire network. The candidates come from the
    build's receipts, which `anole tune` wrote, or, with --order, from RECEIPTS.
    """
    guard_process(f"build {build}")
    block_torch()
    from anole.project.pipeline import find_build
    from anole.refine.stage import refine_network

    if order is None or manifest is None or candidates is None:
        (output,) = enter_project(spec, output)
        inputs = find_build(Path(spec.name), build)
        order, manifest, receipts, candidates = inputs.order, inputs.manifest, inputs.receipts, inputs.refine
    if required:
        require_target(f"build {build}", order.origin.target_description)
    refine_network(build, order, manifest, receipts, candidates, output or layout.refined_path(build))


@click.command(name="compile", epilog="Example: anole compile resnet18-cpu-anole")
@click.argument("build", shell_complete=candidates.builds)
@click.argument("receipts", nargs=-1, type=PATH)
@ORDER
@click.option("--manifest", type=PATH, help="The model's list of tasks, with --order.")
@click.option("--output", type=PATH, help="Folder of the build.  [default: in builds]")
@SPEC
def compile_(
    build: str, receipts: tuple[Path, ...], order: Any, manifest: Path | None, output: Path | None, spec: Path
) -> None:
    """Compile BUILD with its locked configs, or the best known ones.

    BUILD is a name in models.yaml. The best config of each task comes from the build's receipts, which `anole tune` and
    `anole refine` wrote, or, with --order, from RECEIPTS. A task without either gets its default config.
    """
    guard_process(f"build {build}")
    block_torch()
    from anole.compiler.stage import compile_network
    from anole.evaluate.correctness.winograd_error import has_large_rounding_error
    from anole.project.pipeline import find_build

    if order is None or manifest is None:
        (output,) = enter_project(spec, output)
        inputs = find_build(Path(spec.name), build)
        order, manifest, receipts = inputs.order, inputs.manifest, inputs.ingredients
    compile_network(build, order, manifest, receipts, output or layout.build_path(build), has_large_rounding_error)


@click.command(epilog="Example: anole accelerator edge")
@click.argument("accelerator", shell_complete=candidates.accelerators)
@click.argument("receipts", nargs=-1, type=PATH)
@click.option(
    "--order",
    type=OrderType("anole.config.entries:AcceleratorOrder"),
    help="Order to explore, instead of the accelerator's entry in models.yaml.",
)
@click.option("--output", type=PATH, help="Folder of the result.  [default: in accelerators]")
@SPEC
def accelerator(accelerator: str, receipts: tuple[Path, ...], order: Any, output: Path | None, spec: Path) -> None:
    """Find the best designs of ACCELERATOR for its networks.

    ACCELERATOR is a name in models.yaml. The result is the Pareto front of time, area and energy, with the
    configuration of each point. All programs of the networks must have been simulated, which `snakemake` ensures;
    RECEIPTS are used only with --order.
    """
    from anole.project.pipeline import find_accelerator
    from anole.targets import get_kind
    from anole.targets.base import named_object

    if order is None:
        (output,) = enter_project(spec, output)
        order, receipts = find_accelerator(Path(spec.name), accelerator)
    kind = get_kind(next(iter(order.targets.values()))["kind"])
    assert kind.exploration is not None, "checked when models.yaml was read"
    explore = named_object(kind.exploration.stage)
    explore(accelerator, order, receipts, output or layout.accelerator_path(accelerator))


@click.command(epilog="Example: anole evaluate builds/resnet18-cpu-anole --neighbours 0,1,2")
@click.argument("folder", type=PATH, shell_complete=candidates.build_folders)
@click.option("--output", type=PATH, help="File for the evaluation.  [default: in work/evaluations]")
@click.option("--rounds", type=click.IntRange(min=1), default=30, show_default=True, help="Turns per engine.")
@click.option(
    "--neighbours",
    type=Counts(),
    default=(),
    help="Also time the build under load: numbers of busy processes, such as 0,1,2.",
)
@REQUIRED
@click.option("--spec", type=PATH, help="The models.yaml that lists the model.  [default: in the build's project]")
@click.option("--overrides", type=Json(), help="Values that override models.yaml, as in `snakemake --config`.")
def evaluate(
    folder: Path,
    output: Path | None,
    rounds: int,
    neighbours: tuple[int, ...],
    required: bool,
    spec: Path | None,
    overrides: Any,
) -> None:
    """Check and time the build in FOLDER.

    The references are PyTorch and ONNX Runtime or, for a simulated accelerator, the untuned network. Under load, each
    engine takes up to six turns of at least a second and eight runs, regardless of --rounds.
    """
    guard_process(f"build {folder.name}")
    from anole.compiler.recorded import compile_with_random_weights
    from anole.documents.build import read_build
    from anole.evaluate.stage import evaluate_network
    from anole.evaluate.timing.turns import TurnSchedule
    from anole.project.quantized_models import declared_model

    build = read_build(folder)
    declared = declared_model(spec or layout.project_of_build(folder.absolute()) / "models.yaml", build, overrides)
    if required:
        require_target(f"build {build.name}", build.target_description)
    block_torch_for(build.model_spec)
    evaluation = output or layout.evaluation_path(folder.name)
    evaluate_network(folder, evaluation, compile_with_random_weights, TurnSchedule(rounds), neighbours, declared)


@click.command(epilog="Example: anole merge")
@click.argument("builds", nargs=-1, shell_complete=candidates.builds)
@click.option("--shards", type=PATH, help=f"Folder of the recorded trials.  [default: {layout.SHARDS}]")
@click.option("--database", type=PATH, help=f"The database to write.  [default: {layout.DATABASE}]")
@click.option("--stamp", type=PATH, help="File for the result of the merge, written after the database.")
@click.option("--seal", is_flag=True, help="First add checksums to shards of older versions, which have none.")
@SPEC
@click.pass_context
def merge(
    context: click.Context,
    builds: tuple[str, ...],
    shards: Path | None,
    database: Path | None,
    stamp: Path | None,
    seal: bool,
    spec: Path,
) -> None:
    """Merge all trials and BUILDS into the database.

    BUILDS are names or folders of builds; the default is all builds in models.yaml, or none in a folder with records
    but no models.yaml.
    """
    from anole.config.reading import load_spec
    from anole.merge.stage import merge_builds

    selected = [Path(build).absolute() if len(Path(build).parts) > 1 else Path(build) for build in builds]
    shards, database, stamp = enter_project(spec, shards, database, stamp)
    is_hub = context.get_parameter_source("spec") is ParameterSource.DEFAULT and not spec.exists()
    if selected or (is_hub and (shards or layout.SHARDS).is_dir()):
        names = selected
    else:
        names = [Path(build) for build in load_spec(Path(spec.name)).builds]
    folders = [path if path.is_absolute() else layout.build_path(path.name) for path in names]
    merge_builds(folders, shards or layout.SHARDS, database or layout.DATABASE, stamp, seal=seal)
