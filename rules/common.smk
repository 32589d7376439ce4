"""Shared by all rules: the checked models.yaml, and functions that turn wildcards into files and settings."""

import fcntl
import sys
from functools import cache
from pathlib import Path

# In a checkout the library lies beside the rules; in an installed package the rules lie within the library.
_HOME = Path(str(workflow.current_basedir)).parent
_LIBRARY = _HOME / "lib" if (_HOME / "lib").is_dir() else _HOME.parents[1]

if str(_LIBRARY) not in sys.path:
    sys.path.insert(0, str(_LIBRARY))

from anole.documents import layout
from anole.documents.document import argument_of
from anole.errors import AnoleError
from anole.files import write_atomically
from anole.keys import canonical_json, content_key
from anole.extract.stage import extract_versions
from anole.host import launcher as host
from anole.project.hardware import asked_of, is_detected_on_nodes
from anole.project.pipeline import Pipeline


def give_up(error):
    """Ends Snakemake with the library's one-line message, which says what is wrong and how to fix it."""
    print(f"anole: {error}", file=sys.stderr)
    raise SystemExit(2)


if (
    workflow.modifier.path_modifier.prefix
    or workflow.modifier.path_modifier.modifies_prefixes
):
    give_up(
        "the module statement has a prefix, but Anole's files lie beside models.yaml; "
        "use it without one, or in a workflow of its own with a working directory of its own"
    )

SPEC = Path(config.get("spec", "models.yaml"))
if SPEC.parent.resolve() != Path.cwd():
    give_up(
        f"--config spec: found {SPEC}, which is not in the project folder {Path.cwd()}; "
        "change to its folder, or pass that folder with --directory"
    )


def load_pipeline():
    """Reads models.yaml; in a job on a node of a cluster, targets are what the main process found and not the node."""
    overrides = {key: value for key, value in config.items() if key != "spec"}
    try:
        return Pipeline.load(SPEC, overrides, kept=not workflow.is_main_process)
    except AnoleError as error:
        give_up(error)


pipeline = load_pipeline()

for build, reason in pipeline.skipped.items():
    print(f"anole: skips the build {build}: {reason}", file=sys.stderr)


wildcard_constraints:
    model=r"[^/]+",
    target=r"[^/]+",
    build=r"[^/]+",
    task=r"[0-9a-f]{64}",
    run=r"[0-9a-f]{64}",
    key=r"[0-9a-f]{64}",
    trials=r"\d+",


def drop_default_rate():
    """Lets jobs start at any rate, unless the user limits it.

    Snakemake's default limit wakes its scheduler each second, and once more for every job that has ended: after 80 tasks
    that took a fifth of a core from what was being measured. Only the scheduler itself knows the limit at this time.
    """
    limit = workflow.scheduling_settings.max_jobs_per_timespan
    if limit and (limit.max_jobs, limit.timespan) == (100, 1):
        workflow.scheduler.job_rate_limiter = None


def hold_project():
    """Keeps a second Snakemake out of this folder as long as this process runs.

    Snakemake's own lock outlives a killed process, so the profile turns it off.
    """
    hold_project.file = open(".snakemake/anole.lock", "w")
    try:
        fcntl.flock(hold_project.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        give_up("another snakemake is running in this folder")
    except OSError as error:
        give_up(f"this folder's file system locks no files (flock): {error.strerror}")


onstart:
    hold_project()
    drop_default_rate()
    pipeline.keep_targets()


LAUNCHER = host.launcher()


def launcher(wildcards, output):
    """Starts Anole. Asks for the output, as Snakemake then takes no other interpreter or folder for a new parameter."""
    return LAUNCHER


def build_of(wildcards):
    return pipeline.spec.builds[wildcards.build]


def target_of(wildcards):
    """The target of a job: of its build, of its run, or its own."""
    if hasattr(wildcards, "target"):
        return wildcards.target
    if hasattr(wildcards, "build"):
        return build_of(wildcards).target
    return pipeline.build_of(wildcards.task, wildcards.run).target


def described(target):
    """Waits for a node to say what a target is, if only nodes can, and returns the target's name."""
    global pipeline
    if target in pipeline.undescribed:
        checkpoints.describe.get(target=target)
        pipeline = load_pipeline()
    return target


def description_file(wildcards):
    """Where a node says what the target is, if only nodes can."""
    target = pipeline.spec.targets[described(wildcards.target)]
    return (
        str(layout.described_path(target.name)) if is_detected_on_nodes(target) else []
    )


def argument(plain):
    """An argument of a command that is too long for a command line: the file of its content, which jobs find here."""
    path = layout.argument_path(content_key(plain))
    if not workflow.dryrun:
        write_atomically(path, canonical_json(plain))
    return f"@{path}"


def model_files(wildcards):
    """The model's own files; only a change of these extracts the model again."""
    return pipeline.files(wildcards.model)


def asked_of_target(wildcards):
    return argument(asked_of(pipeline.spec.targets[wildcards.target]))


def model_entry(wildcards):
    return argument(pipeline.spec.models[wildcards.model].to_json())


def target_description(wildcards):
    return argument(pipeline.description(described(wildcards.target)))


def versions(wildcards):
    return canonical_json(
        extract_versions(pipeline.description(described(wildcards.target)))
    )


def tuner_settings(wildcards):
    return argument(pipeline.tuner_of(wildcards.task, wildcards.run)[0].to_json())


def tuner_seed(wildcards):
    return pipeline.tuner_of(wildcards.task, wildcards.run)[1]


def shared_tuner_settings(wildcards):
    return argument(_shared_tuner(wildcards)[0].to_json())


def shared_tuner_seed(wildcards):
    return _shared_tuner(wildcards)[1]


def build_files(wildcards):
    return pipeline.files(build_of(wildcards).model)


def build_order(wildcards):
    build = build_of(wildcards)
    described(build.target)
    return argument(argument_of(pipeline.order(build)))


def required(wildcards):
    """The option of stages that measure a build, unless its target is known to be elsewhere."""
    return "" if build_of(wildcards).target in pipeline.absences else "--required"


def manifest(wildcards):
    return pipeline.manifest(build_of(wildcards))


def receipts(wildcards):
    """The receipts that show that a build's tasks are tuned; a locked task needs none."""
    return _receipts(wildcards.build)


def ingredients(wildcards):
    """The receipts that a build is compiled with: the refined ones if it is refined."""
    of_tasks, build = receipts(wildcards), build_of(wildcards)
    return str(layout.refined_path(build.name)) if candidates(wildcards) else of_tasks


def candidates(wildcards):
    """The number of candidates of each task to try within a build's network; a locked build is not refined."""
    return pipeline.candidates(build_of(wildcards))


def receipts_of(build):
    """Returns an input function for the receipts of one build, so that a broken model holds up its own builds only."""
    return lambda wildcards: _receipts(build.name)


def _shared_tuner(wildcards):
    return pipeline.shared_tuner_of(wildcards.model, wildcards.target, wildcards.key)


@cache
def _receipts(name):
    """The receipts of a build's tasks, which are known once its model is extracted; until then Snakemake asks again."""
    build = pipeline.spec.builds[name]
    described(build.target)
    checkpoints.extract.get(model=build.model, target=build.target)
    try:
        return pipeline.receipts(build)
    except AnoleError as error:
        give_up(error)
