"""The checked models.yaml, and the functions for inputs, parameters and resources that all rules share."""

import fcntl
import sys
from pathlib import Path

# In a checkout the library is next to the rules; in an installed package the rules are in the library.
_HOME = Path(str(workflow.current_basedir)).parent
_LIBRARY = _HOME / "lib" if (_HOME / "lib").is_dir() else _HOME.parents[1]

if str(_LIBRARY) not in sys.path:
    sys.path.insert(0, str(_LIBRARY))

from anole.documents import layout
from anole.errors import AnoleError
from anole.host import launcher as host
from anole.project.rule_inputs import RuleInputs, exit_with_error
from anole.project.pipeline import Pipeline
from anole.targets import usable_kinds

if (
    workflow.modifier.path_modifier.prefix
    or workflow.modifier.path_modifier.modifies_prefixes
):
    exit_with_error(
        "the module statement has a prefix, but Anole's files are next to models.yaml; "
        "remove the prefix, or run Anole as a separate workflow in its own working directory"
    )

SPEC = Path(config.get("spec", "models.yaml"))
if SPEC.parent.resolve() != Path.cwd():
    exit_with_error(
        f"--config spec: found {SPEC}, which is not in the project folder {Path.cwd()}; "
        "change to its folder, or pass its folder with --directory"
    )


OVERRIDES = {key: value for key, value in config.items() if key != "spec"}


def load_pipeline():
    """Read models.yaml; jobs on a cluster's nodes use the main process's descriptions of the targets."""
    try:
        return Pipeline.load(SPEC, OVERRIDES, kept=not workflow.is_main_process)
    except AnoleError as error:
        exit_with_error(error)


rule_inputs = RuleInputs(
    load_pipeline,
    workflow,
    wait_for_target=lambda target: checkpoints.describe.get(target=target),
    wait_for_model=lambda model, target: checkpoints.extract.get(
        model=model, target=target
    ),
    overrides=OVERRIDES,
)
pipeline = rule_inputs.pipeline

for build, reason in pipeline.skipped.items():
    print(f"anole: skipping build {build}: {reason}", file=sys.stderr)


wildcard_constraints:
    model=r"[^/]+",
    target=r"[^/]+",
    build=r"[^/]+",
    accelerator=r"[^/]+",
    task=r"[0-9a-f]{64}",
    run=r"[0-9a-f]{64}",
    key=r"[0-9a-f]{64}",
    trials=r"\d+",


def drop_default_rate():
    """Remove the default limit on the rate at which jobs start, but not a limit set by the user.

    Snakemake's default limit wakes its scheduler every second, and once more per finished job. After 80 tasks, this
    took a fifth of a core from measurements. When a run starts, only the scheduler still knows the limit.
    """
    limit = workflow.scheduling_settings.max_jobs_per_timespan
    if limit and (limit.max_jobs, limit.timespan) == (100, 1):
        workflow.scheduler.job_rate_limiter = None


def hold_project():
    """Prevent a second Snakemake from running in this folder while this process runs.

    Snakemake's own lock outlives a killed process, so the profile turns it off.
    """
    hold_project.file = open(".snakemake/anole.lock", "w")
    try:
        fcntl.flock(hold_project.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        exit_with_error("another snakemake is running in this folder")
    except OSError as error:
        exit_with_error(f"this folder's file system has no flock: {error.strerror}")


onstart:
    hold_project()
    drop_default_rate()
    rule_inputs.pipeline.keep_targets()


RULES_OF_KINDS = [str(kind.rules) for kind in usable_kinds().values() if kind.rules]
ENVIRONMENT = str(_HOME / "environment.yml")
LAUNCHER = host.launcher()


def launcher(wildcards, output):
    """Return the command that starts Anole. The parameter `output` hides changes of the command from rerun triggers."""
    return LAUNCHER
