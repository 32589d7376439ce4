"""The command line: one command for each stage, each a single call into the library."""

from __future__ import annotations

import errno
import json
import logging
import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from anole.documents import layout
from anole.errors import AnoleError, SpecError
from anole.extract import guard
from anole.host.temporaries import own_temporaries

if TYPE_CHECKING:
    from anole.spec.entries import ModelSpec

_NO_SPACE_OR_RIGHT = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)


class _Commands(click.Group):
    """Prints one line instead of a traceback for an error of the library or of the disk."""

    owns_process = False
    """Whether the command is all that this process does, which may then fork."""

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        self.owns_process = True
        return super().__call__(*arguments, **settings)

    def invoke(self, context: click.Context) -> Any:
        try:
            found = super().invoke(context)
            guard.finish()
            return found
        except AnoleError as error:
            message = str(error)
        except OSError as error:
            if error.errno not in _NO_SPACE_OR_RIGHT:
                raise
            message = f"{error.filename or 'a file'}: cannot be written: {error.strerror}"
        click.echo("anole: " + "; ".join(line.strip() for line in message.splitlines() if line.strip()), err=True)
        context.exit(2)


class _Counts(click.ParamType[tuple[int, ...]]):
    """Different numbers of processes, separated by commas."""

    name = "counts"
    _most = 256

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        words = [word.strip() for word in value.split(",")]
        counts = tuple(int(word) for word in words if word.isdecimal() and int(word) <= self._most)
        if len(counts) < len(words) or len(set(counts)) < len(counts):
            self.fail(f"found {value!r}; different numbers from 0 to {self._most} are expected, such as 0,1,2", param)
        return counts


class _Json(click.ParamType[dict[str, Any]]):
    """A JSON object."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        try:
            plain = json.loads(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(f"{value!r} is not JSON: {error}", param, context)
        if not isinstance(plain, dict):
            self.fail(f"{value!r} is not a JSON object", param, context)
        return plain


class _Order(_Json):
    """A build's order, in JSON."""

    name = "order"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        from anole.documents.order import Order
        from anole.documents.plain import Misfit, from_plain

        try:
            return from_plain(Order, super().convert(value, param, context))
        except Misfit as error:
            self.fail(f"{error}", param, context)


_PATH = click.Path(path_type=Path)
_MEASURE = click.option("--measure", type=_Json(), help="The target's `measure` entry: a device on another machine.")
_BUILDERS = click.option(
    "--builders",
    type=click.IntRange(1),
    help="Candidates to build in parallel.  [default: the target's threads for the CPU, all cores otherwise]",
)
_SPEC = click.option(
    "--spec",
    type=_PATH,
    default=Path("models.yaml"),
    show_default=True,
    help="The file that lists models, targets and builds; its folder is the project folder.",
)
_ORDER = click.option("--order", type=_Order(), help="What to compile, instead of the build's entry in models.yaml.")


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="anole")
@click.pass_context
def main(context: click.Context) -> None:
    """Tune deep networks for the hardware they will run on."""
    context.with_resource(own_temporaries())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")


@main.command()
@click.argument("model")
@click.option("--target", required=True, help="The target's name.")
@click.option("--entry", type=_Json(), help="The model's entry, instead of the one in models.yaml.")
@click.option("--target-description", "description", type=_Json(), help="The target's complete description.")
@click.option("--manifest", type=_PATH, help="Where the model's list of tasks is written.")
@click.option("--tasks", type=_PATH, help=f"Folder of the tasks.  [default: {layout.TASKS}]")
@_SPEC
def extract(
    model: str, target: str, entry: Any, description: Any, manifest: Path | None, tasks: Path | None, spec: Path
) -> None:
    """Split MODEL into its distinct tasks for a target."""
    _guard(f"model {model}")
    from anole.extract.stage import extract_model
    from anole.project.pipeline import find_model
    from anole.spec.entries import ModelSpec

    if entry is None or description is None:
        manifest, tasks = _enter_project(spec, manifest, tasks)
        found, description = find_model(Path(spec.name), model, target)
    else:
        found = ModelSpec.from_json(model, entry)
    _spare_torch(found)
    extract_model(found, target, description, manifest or layout.manifest_path(model, target), tasks or layout.TASKS)


@main.command()
@click.argument("task", type=_PATH)
@click.option("--preset", help="The tuner preset.  [default: the default of models.yaml]")
@click.option("--tuner", type=_Json(), help="The complete tuner settings: a preset and its overrides.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
@click.option("--trials", type=click.IntRange(1), default=64, show_default=True, help="Configs to measure.")
@click.option("--shards", type=_PATH, default=layout.SHARDS, show_default=True, help="Folder of the recorded trials.")
@click.option("--receipt", type=_PATH, help="Where the receipt is written.")
@click.option("--again", type=click.Choice(["failures"]), help="First measure recorded trials again that failed.")
@_MEASURE
@_BUILDERS
def tune(
    task: Path,
    preset: str | None,
    tuner: Any,
    seed: int,
    trials: int,
    shards: Path,
    receipt: Path | None,
    again: str | None,
    measure: Any,
    builders: int | None,
) -> None:
    """Tune TASK, a file that `anole extract` wrote.

    Trials that are already recorded are not measured again, except with `--again failures`: those that the machine may
    have made fail.
    """
    from anole.search.presets import read_tuner
    from anole.targets.rpc.address import Remote
    from anole.tune.stage import tune_task

    settings, remote = read_tuner(tuner or _preset(preset)), Remote.from_json(measure or {})
    tune_task(task, settings, seed, trials, shards, receipt, remote, builders, failures_again=again == "failures")


@main.command(name="tune-together")
@click.argument("manifest", type=_PATH)
@click.option("--preset", help="The tuner preset.  [default: the default of models.yaml]")
@click.option("--tuner", type=_Json(), help="The complete tuner settings: a preset and its overrides.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
@click.option("--trials", type=click.IntRange(1), required=True, help="Configs to measure for all tasks together.")
@click.option("--tasks", type=_PATH, default=layout.TASKS, show_default=True, help="Folder of the tasks.")
@click.option("--shards", type=_PATH, default=layout.SHARDS, show_default=True, help="Folder of the recorded trials.")
@click.option("--receipts", type=_PATH, required=True, help="Where the receipts of all tasks are written.")
@_MEASURE
@_BUILDERS
def tune_together(
    manifest: Path,
    preset: str | None,
    tuner: Any,
    seed: int,
    trials: int,
    tasks: Path,
    shards: Path,
    receipts: Path,
    measure: Any,
    builders: int | None,
) -> None:
    """Tune all tasks of MANIFEST with one shared budget.

    `anole extract` writes manifests. The budget is spent on the tasks where it saves most time.
    """
    from anole.search.presets import read_tuner
    from anole.targets.rpc.address import Remote
    from anole.tune.stage import tune_model

    settings, remote = read_tuner(tuner or _preset(preset)), Remote.from_json(measure or {})
    tune_model(manifest, tasks, settings, seed, trials, shards, receipts, remote, builders)


@main.command()
@click.argument("build")
@click.argument("receipts", nargs=-1, type=_PATH)
@_ORDER
@click.option("--manifest", type=_PATH, help="The model's list of tasks, with --order.")
@click.option("--candidates", type=click.IntRange(1), help="Candidates to try for each task, with --order.")
@click.option("--output", type=_PATH, help="Where the receipts of the best candidates within the network are written.")
@_SPEC
def refine(
    build: str,
    receipts: tuple[Path, ...],
    order: Any,
    manifest: Path | None,
    candidates: int | None,
    output: Path | None,
    spec: Path,
) -> None:
    """Choose the candidates that are fastest within BUILD.

    The candidates come from RECEIPTS, which `anole tune` wrote; each is timed within the whole network.
    """
    _guard(f"build {build}")
    from anole.project.pipeline import find_build
    from anole.refine.stage import refine_network

    if order is None or manifest is None or candidates is None:
        (output,) = _enter_project(spec, output)
        found = find_build(Path(spec.name), build)
        order, manifest, receipts, candidates = found.order, found.manifest, found.receipts, found.refine
    _spare_torch(order.model_spec)
    refine_network(build, order, manifest, receipts, candidates, output or layout.refined_path(build))


@main.command(name="compile")
@click.argument("build")
@click.argument("receipts", nargs=-1, type=_PATH)
@_ORDER
@click.option("--manifest", type=_PATH, help="The model's list of tasks, with --order.")
@click.option("--output", type=_PATH, help="Folder of the build.")
@_SPEC
def compile_(
    build: str, receipts: tuple[Path, ...], order: Any, manifest: Path | None, output: Path | None, spec: Path
) -> None:
    """Compile BUILD with the configs of RECEIPTS.

    `anole tune` and `anole refine` write receipts.
    """
    _guard(f"build {build}")
    from anole.compile.stage import compile_network
    from anole.project.pipeline import find_build

    if order is None or manifest is None:
        (output,) = _enter_project(spec, output)
        found = find_build(Path(spec.name), build)
        order, manifest, receipts = found.order, found.manifest, found.ingredients
    _spare_torch(order.model_spec)
    compile_network(build, order, manifest, receipts, output or layout.build_path(build))


@main.command()
@click.argument("folder", type=_PATH)
@click.option("--output", type=_PATH, help="Where the evaluation is written.")
@click.option("--rounds", type=click.IntRange(min=1), default=30, show_default=True, help="Turns of each engine.")
@click.option(
    "--neighbours",
    type=_Counts(),
    default=(),
    help="Also time it beside busy processes: their numbers, such as 0,1,2.",
)
def evaluate(folder: Path, output: Path | None, rounds: int, neighbours: tuple[int, ...]) -> None:
    """Check and time the build in FOLDER.

    The references are PyTorch and ONNX Runtime; for the simulated accelerator, the untuned network. Beside busy
    processes, each engine takes six turns of at least a second and eight runs, whatever --rounds says.
    """
    _guard(f"build {folder.name}")
    from anole.compile.redrawn import compile_redrawn
    from anole.documents.build import read_build
    from anole.evaluate.interleave import Pace
    from anole.evaluate.stage import evaluate_network

    _spare_torch(read_build(folder).model_spec)
    evaluation = output or layout.evaluation_path(folder.name)
    evaluate_network(folder, evaluation, compile_redrawn, Pace(rounds=rounds), neighbours)


@main.command()
@click.argument("folder", type=_PATH)
@click.option(
    "--input",
    "inputs",
    type=_PATH,
    multiple=True,
    required=True,
    help="A .npy file for each input, in order, or one .npz file with all inputs by name.",
)
@click.option("--output", type=_PATH, help="Where the outputs are written, as .npz or .npy.")
def run(folder: Path, inputs: tuple[Path, ...], output: Path | None) -> None:
    """Run the build in FOLDER on given inputs.

    It runs on its device or, if it is for an accelerator, on the simulator.
    """
    from anole.report.run import run_build

    _without_torch()
    for name, array in run_build(folder, inputs, output).items():
        click.echo(f"{name}: {array.dtype} {list(array.shape)}, {_shown(array)}")


@main.command()
@click.argument("folder", type=_PATH)
@click.option("--seconds", type=click.FloatRange(0), default=5, show_default=True, help="How long to measure.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def profile(folder: Path, seconds: float, as_json: bool) -> None:
    """Time every kernel of the build in FOLDER.

    The profile compares each kernel with the machine's roofline.
    """
    from rich.console import Console

    from anole.report.profile import profile_build, render_profile

    _without_torch()
    made = profile_build(folder, seconds)
    if as_json:
        click.echo(json.dumps(made.to_json(), indent=1))
    else:
        Console().print(render_profile(made))


@main.command()
@click.argument("folder", type=_PATH)
@click.option("--to", "output", type=_PATH, required=True, help="Folder of the library, which replaces another.")
@click.option(
    "--weights",
    type=click.Choice(["library", "file"]),
    default="library",
    show_default=True,
    help="Where the weights go: into the library, or into a file beside it that is mapped.",
)
@click.option(
    "--level",
    "levels",
    multiple=True,
    help="A level of instructions: tuned, x86-64-v4, x86-64-v3 or x86-64-v2; may be repeated.  [default: all]",
)
@click.option("--prefix", default="network", show_default=True, help="What names of functions and files begin with.")
def export(folder: Path, output: Path, weights: str, levels: tuple[str, ...], prefix: str) -> None:
    """Export the build in FOLDER as a C library.

    The library needs neither TVM nor Python. Only builds for a CPU can be exported.
    """
    _guard(f"build {folder.name}")
    from anole.documents.build import read_build
    from anole.export.stage import export_build

    _spare_torch(read_build(folder).model_spec)
    export_build(folder, output, weights == "library", levels, prefix)


@main.command()
@click.argument("builds", nargs=-1)
@click.option("--shards", type=_PATH, help=f"Folder of the recorded trials.  [default: {layout.SHARDS}]")
@click.option("--database", type=_PATH, help=f"Where the database is written.  [default: {layout.DATABASE}]")
@click.option("--stamp", type=_PATH, help="Where to write what was merged, once the database holds it.")
@click.option("--seal", is_flag=True, help="First give checksums to shards of older versions, which have none.")
@_SPEC
def merge(
    builds: tuple[str, ...], shards: Path | None, database: Path | None, stamp: Path | None, seal: bool, spec: Path
) -> None:
    """Merge all trials and BUILDS into the database.

    BUILDS are names or folders of builds; the default is all builds in models.yaml.
    """
    from anole.merge.stage import merge_builds
    from anole.spec.reading import load_spec

    given = [Path(build).absolute() if len(Path(build).parts) > 1 else Path(build) for build in builds]
    shards, database, stamp = _enter_project(spec, shards, database, stamp)
    names = given or [Path(build) for build in load_spec(Path(spec.name)).builds]
    folders = [path if path.is_absolute() else layout.build_path(path.name) for path in names]
    merge_builds(folders, shards or layout.SHARDS, database or layout.DATABASE, stamp, seal=seal)


@main.command(name="import")
@click.argument("source", type=_PATH)
@click.option("--shards", type=_PATH, default=layout.SHARDS, show_default=True, help="Folder of the recorded trials.")
def import_(source: Path, shards: Path) -> None:
    """Import trials from SOURCE.

    SOURCE is a database or a folder of shards from another machine.
    """
    from anole.merge.exchange import import_records

    done = import_records(source, shards)
    for path in done.kept_beside:
        click.echo(f"{path}: differs from the records that are here; both are kept, and these are not used")
    click.echo(
        f"{source}: {done.new} runs are new, {done.continued} were continued, {done.known} were known and "
        f"{len(done.kept_beside)} are kept beside others; {done.trials} trials are new"
    )


@main.command()
@click.argument("builds", nargs=-1)
@click.option("--remove", is_flag=True, help="Unlock BUILDS: remove their entries.")
@_SPEC
def lock(builds: tuple[str, ...], remove: bool, spec: Path) -> None:
    """Keep BUILDS compiled with the configs that they have now.

    The configs are written into anole.lock.json beside models.yaml, to be committed. The default is all builds that are
    compiled. Entries of other builds stay as they are.
    """
    from anole.project.lock import lock_builds, unlock_builds

    if remove and not builds:
        raise click.UsageError("give the builds to unlock; to unlock all, delete the lock file")
    if remove:
        unlock_builds(spec, builds)
        click.echo(f"unlocked: {', '.join(builds)}")
        return
    for name, entry in lock_builds(spec, builds).items():
        n_untuned = sum(task.run_key is None for task in entry.tasks.values())
        click.echo(f"{name}: locked {len(entry.tasks)} tasks" + (f", {n_untuned} of them untuned" if n_untuned else ""))


@main.command()
@_SPEC
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(spec: Path, as_json: bool) -> None:
    """Show the tasks, their state, and what would run next."""
    from rich.console import Console

    from anole.project.pipeline import Pipeline
    from anole.project.plan import make_plan
    from anole.report.plan_table import render_plan

    made = make_plan(Pipeline.load(spec))
    if as_json:
        click.echo(json.dumps(made.to_json(), indent=1))
    else:
        Console().print(render_plan(made))


@main.command()
def doctor() -> None:
    """Describe this machine: hardware, software, peak speed."""
    from anole.report.doctor import report

    click.echo(report())


@main.command()
@click.option("--tracker", help="host:port of TVM's RPC tracker; without it, clients connect to this machine itself.")
@click.option("--key", help="The tracker's name for devices of this kind.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. The default serves only this machine; 0.0.0.0 serves all that reach it.",
)
@click.option("--port", type=click.IntRange(1, 65535), default=9090, show_default=True, help="Port to listen on.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads that run kernels.  [default: all cores]")
def serve(tracker: str | None, key: str | None, host: str, port: int, threads: int | None) -> None:
    """Lend this machine's devices to other machines.

    They can then tune for these devices. Whoever reaches the server can run any program here, so give --host only
    within a trusted network.
    """
    from anole.host.machine import available_cores
    from anole.targets.rpc.address import Remote
    from anole.targets.rpc.server import serve

    if (tracker is None) != (key is None):
        raise click.UsageError("give --tracker and --key together, or neither")
    _without_torch()
    named = Remote.from_json({"rpc": tracker, "key": key} if tracker is not None else {})
    serve(host, port, named, threads or available_cores())


@main.group()
def vta() -> None:
    """Inspect programs for the VTA accelerator."""


@vta.command()
@click.option("--schedules", type=_PATH, required=True, help="Rows of shape, workload and schedule, as JSON.")
def cycles(schedules: Path) -> None:
    """Print each schedule with its cycle count, or with the reason why it is rejected."""
    from anole.targets.vta.templates.schedules import count_cycles, read_schedules

    click.echo(json.dumps([count_cycles(row) for row in read_schedules(schedules)], indent=1))


@vta.command(name="trace")
@click.argument("stream", type=_PATH)
@click.option("--geometry", type=_Json(), help="The accelerator's geometry.  [default: VTA's own]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def trace_(stream: Path, geometry: Any, as_json: bool) -> None:
    """Print when each instruction of STREAM starts and ends, in cycles since the launch."""
    from anole.targets.vta.geometry import Geometry
    from anole.targets.vta.templates.schedules import trace

    rows = trace(stream, Geometry.from_json(geometry or {}))
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        click.echo(f"{row['number']:6} {row['module']:8} {row['start']:10} {row['end']:10}  {row['instruction']}")


@vta.command(name="report")
@click.option("--schedules", type=_PATH, help="Rows of shape, workload and schedule, as JSON.")
@click.option("--row", type=click.IntRange(0), default=0, show_default=True, help="Row to report, with --schedules.")
@click.option("--build", type=_PATH, help="Folder of a build, instead of --schedules.")
@click.option("--step", help="Name of the layer to report, with --build.")
@click.option("--picture", type=_PATH, help="Where the timeline of all modules is written, as SVG.")
@click.option("--until", type=click.IntRange(1), help="The last cycle of the picture.")
def report_(
    schedules: Path | None, row: int, build: Path | None, step: str | None, picture: Path | None, until: int | None
) -> None:
    """Report how well a schedule, or a layer of a build, uses the accelerator."""
    from anole.files import write_atomically
    from anole.targets.vta.network.artifact import BuiltNetwork
    from anole.targets.vta.report import draw_timeline, summarize
    from anole.targets.vta.templates.schedules import program_of, read_row

    if schedules is not None and build is None:
        program = program_of(read_row(schedules, row))
    elif build is not None and step is not None and schedules is None:
        program = BuiltNetwork.load(build).program(step)
    else:
        raise click.UsageError("give --schedules, or --build and --step")
    text, timeline = summarize(program)
    click.echo(text)
    if picture is not None:
        write_atomically(picture, draw_timeline(program.instructions, timeline, until))


def _shown(array: Any) -> str:
    """Returns the first numbers of an array as text."""
    first = array.ravel()[:5]
    return ", ".join(f"{number:.6g}" for number in first) + (", ..." if array.size > len(first) else "")


def _preset(name: str | None) -> dict[str, str]:
    """Returns the plain form of a preset's tuner; that of the default preset if the name is None."""
    return {} if name is None else {"preset": name}


def _enter_project(spec: Path, *paths: Path | None) -> list[Path | None]:
    """Changes to the project folder, which holds models.yaml, and returns the other paths made absolute.

    Raises:
        SpecError: the folder does not exist.
    """
    if spec.parent.resolve() == Path.cwd():
        return list(paths)
    if not spec.parent.is_dir():
        raise SpecError("", f"there is no folder {spec.parent}", str(spec))
    seen = [path if path is None else path.absolute() for path in paths]
    os.chdir(spec.parent)
    return seen


def _guard(what: str) -> None:
    """Guards the rest of the command against the code of a model; call it before anything heavy is imported."""
    if main.owns_process:
        guard.guard(what)


def _spare_torch(model: ModelSpec) -> None:
    """Prevents TVM from importing torch for a model that does not need it."""
    if model.scheme == "onnx":
        _without_torch()


def _without_torch() -> None:
    """Prevents TVM from importing torch, which takes most of TVM's import time."""
    import_module("anole.measure.without_torch")


if __name__ == "__main__":
    main(prog_name="anole")
