"""The stages beside tuning that go from files to files: extracting, compiling and merging."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from anole import layout
from anole.extract import extract
from anole.keys import document, write_atomically
from anole.pipeline import extract_versions, read_manifest
from anole.receipts import read_receipts
from anole.spec import ModelSpec
from anole.store.database import merge
from anole.store.documents import read_build
from anole.targets import get_target

logger = logging.getLogger(__name__)


def extract_model(
    model: ModelSpec, target: str, description: Mapping[str, Any], manifest_path: Path, tasks_dir: Path
) -> None:
    """Writes a model's manifest for a target, and every task that is in it.

    Args:
        model: what is extracted.
        target: its name in models.yaml.
        description: of the target.
        manifest_path: what is written last, so that where it is, all its tasks are.
        tasks_dir: where tasks are shared by all models; those that are there already stay untouched.

    Raises:
        ExtractError: the model cannot be loaded or turned into tasks.
    """
    hardware = get_target(description)
    manifest, tasks = extract(model, target, description, hardware.template_version, hardware.takes)
    if not tasks:
        logger.warning("model %s: has no layer that target %s can run", model.name, target)
    for task in tasks:
        write_atomically(tasks_dir / f"{task.key}.json", document(task.to_json()))
    write_atomically(manifest_path, document({**manifest, "versions": extract_versions(description)}))


def compile_network(
    build: str, order: Mapping[str, Any], manifest_path: Path, receipt_paths: Iterable[Path], folder: Path
) -> None:
    """Compiles a build from what extracting and tuning left.

    Args:
        build: its name.
        order: what `Pipeline.order` says of it.
        manifest_path: of its model on its target.
        receipt_paths: of the model's tasks, one by one, together or refined; what has none stays untuned, which is
            said.
        folder: where the build goes.

    Raises:
        ExtractError: the manifest is missing, broken or stale, or a receipt is.
        BuildError: the network cannot be compiled.
    """
    from anole.build import BuildSettings, compile_build

    manifest = read_manifest(manifest_path, order["origin"])
    receipts = read_receipts(receipt_paths)
    model = ModelSpec.from_json(order["model"], order["origin"]["entry"])
    settings = BuildSettings(build, order["preset"], order["trials"], order["shared"], order["seed"])
    compile_build(model, manifest, settings, receipts, folder)


def merge_builds(builds: Iterable[str], shards_dir: Path, database_path: Path) -> None:
    """Folds all shards, and what there is of some builds, into the database.

    Args:
        builds: their names; one that is not compiled yet is left out, and told of.
        shards_dir: of all shards.
        database_path: made when it is not there.

    Raises:
        StoreError: something cannot be read, or the database cannot be written.
    """
    paths = {name: layout.build_path(name) / "build.json" for name in builds}
    compiled = [path for path in paths.values() if path.exists()]
    for name, path in paths.items():
        if path not in compiled:
            logger.warning("%s is left out: it is not compiled yet", name)
    documents = [read_build(path).plain for path in compiled]
    manifests = {layout.manifest_path(build["model"], build["target"]) for build in documents}
    evaluations = [path for build in documents if (path := layout.evaluation_path(build["name"])).exists()]
    merged = merge(shards_dir, sorted(manifests), compiled, evaluations, database_path)
    logger.info(
        "%s: %d runs, %d trials; %d runs are new or longer than before",
        database_path,
        merged.runs,
        merged.trials,
        merged.changed_runs,
    )
