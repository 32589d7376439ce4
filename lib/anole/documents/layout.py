"""Where a project's files are, relative to the folder that holds models.yaml."""

from __future__ import annotations

from pathlib import Path

DATABASE = Path("db/tuning.sqlite")
LOCKFILE = Path("anole.lock.json")
"""The configs that users chose to keep; unlike all else here, it is meant to be committed."""

MERGED = Path("work/merged.json")
"""What was merged last into the database. Snakemake manages this file, and never the database itself."""

MODELS = Path("work/models")
SHARDS = Path("db/shards")
TASKS = Path("work/tasks")
BUILDS = Path("builds")
ACCELERATORS = Path("accelerators")
DIGESTS = Path("work/digests.json")
"""The digests of large model files."""


def manifest_path(model: str, target: str) -> Path:
    """Return where extracting a model for a target leaves its list of tasks."""
    return MODELS / model / f"{target}.json"


def quantized_path(model: str) -> Path:
    """Return where a model is as a quantized file, for targets whose precision is int8."""
    return Path("work/quantized", f"{model}.onnx")


def described_path(target: str) -> Path:
    """Return where the description of a target is kept."""
    return Path("work/targets", f"{target}.json")


def argument_path(key: str) -> Path:
    """Return where an argument of a command is that is too long for a command line; the key is of its content."""
    return Path("work/arguments", f"{key}.json")


def task_path(task_key: str) -> Path:
    """Return where a task is, whichever models contain it."""
    return TASKS / f"{task_key}.json"


_WRITERS = {
    "tuned/*/*/*.json": "tune",
    "tuned_together/*/*/*/*.json": "tune_together",
    "refined/*.json": "refine",
}
"""The stages that write receipts, by the ends of the paths that follow."""


def receipt_path(task_key: str, run_key: str, trials: int) -> Path:
    """Return where a run's receipt for a budget is; the path changes with everything that it depends on."""
    return Path("work/tuned", task_key, run_key, f"{trials}.json")


def shared_receipts_path(model: str, target: str, key: str, trials: int) -> Path:
    """Return where the receipts of a model's tasks are that shared a budget; the path changes as theirs do."""
    return Path("work/tuned_together", model, target, key, f"{trials}.json")


def refined_path(build: str) -> Path:
    """Return where the receipts of a build are after its candidates were tried within its network."""
    return Path("work/refined", f"{build}.json")


def writer_of_receipts(path: Path) -> str:
    """Return the stage that writes the receipts of a file; ``tune`` if they are not where a project has them."""
    return next((stage for pattern, stage in _WRITERS.items() if path.match(pattern)), "tune")


def build_path(build: str) -> Path:
    """Return the folder of a compiled build."""
    return BUILDS / build


def accelerator_path(name: str) -> Path:
    """Return the folder of an accelerator's front."""
    return ACCELERATORS / name


def evaluation_path(build: str) -> Path:
    """Return where the evaluation of a build is."""
    return Path("work/evaluations", f"{build}.json")


def project_of_manifest(path: Path) -> Path:
    """Return the folder of the project that a manifest belongs to."""
    return path.parent.parent.parent.parent


def project_of_build(folder: Path) -> Path:
    """Return the folder of the project that a build's folder belongs to."""
    return folder.parent.parent
