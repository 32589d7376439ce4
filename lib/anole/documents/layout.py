"""The paths of a project's files, relative to the folder of models.yaml."""

from __future__ import annotations

from pathlib import Path

DATABASE = Path("db/tuning.sqlite")
LOCKFILE = Path("anole.lock.json")
"""The configs that users locked. Unlike the other files of this module, users commit it."""

MERGED = Path("work/merged.json")
"""The result of the last merge. Snakemake tracks this file, but never the database itself."""

MODELS = Path("work/models")
SHARDS = Path("db/shards")
TASKS = Path("work/tasks")
BUILDS = Path("builds")
ACCELERATORS = Path("accelerators")
DIGESTS = Path("work/digests.json")
"""The digests of large model files."""


def manifest_path(model: str, target: str) -> Path:
    """Return the path of the manifest of a model on a target."""
    return MODELS / model / f"{target}.json"


def quantized_path(model: str) -> Path:
    """Return the path of a model's quantized file, for targets whose precision is int8."""
    return Path("work/quantized", f"{model}.onnx")


def described_path(target: str) -> Path:
    """Return the path of a target's stored description."""
    return Path("work/targets", f"{target}.json")


def argument_path(key: str) -> Path:
    """Return the path of an argument that is too long for a command line, by its content key."""
    return Path("work/arguments", f"{key}.json")


def task_path(task_key: str) -> Path:
    """Return the path of a task, which models share."""
    return TASKS / f"{task_key}.json"


_WRITERS = {"tuned/*/*/*.json": "tune", "tuned_together/*/*/*/*.json": "tune_together", "refined/*.json": "refine"}
"""The stages that write receipts, by the path patterns of the receipts."""


def receipt_path(task_key: str, run_key: str, trials: int) -> Path:
    """Return the path of a run's receipt for a budget; the path changes with everything the receipt depends on."""
    return Path("work/tuned", task_key, run_key, f"{trials}.json")


def shared_receipts_path(model: str, target: str, key: str, trials: int) -> Path:
    """Return the path of the receipts of a model's tasks with a shared budget; see `receipt_path`."""
    return Path("work/tuned_together", model, target, key, f"{trials}.json")


def refined_path(build: str) -> Path:
    """Return the path of a refined build's receipts."""
    return Path("work/refined", f"{build}.json")


def receipt_stage(path: Path) -> str:
    """Return the stage that writes a file of receipts; ``tune`` for a file outside a project's folders."""
    return next((stage for pattern, stage in _WRITERS.items() if path.match(pattern)), "tune")


def build_path(build: str) -> Path:
    """Return the folder of a compiled build."""
    return BUILDS / build


def accelerator_path(name: str) -> Path:
    """Return the folder of an accelerator's Pareto front."""
    return ACCELERATORS / name


def evaluation_path(build: str) -> Path:
    """Return the path of a build's evaluation."""
    return Path("work/evaluations", f"{build}.json")


def project_of_manifest(path: Path) -> Path:
    """Return the project folder of a manifest."""
    return path.parent.parent.parent.parent


def project_of_build(folder: Path) -> Path:
    """Return the project folder of a build's folder."""
    return folder.parent.parent
