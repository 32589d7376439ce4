"""Compiles a build once more with other weights, for builds whose own weights let no comparison fail."""

from __future__ import annotations

import logging
from pathlib import Path

from anole.compile.build import BuildSettings, compile_build
from anole.documents.build import Build
from anole.documents.manifest import ListedTask, Manifest, Origin
from anole.documents.receipt import Receipt
from anole.extract.load import load_model


def compile_redrawn(build: Build, folder: Path) -> Build:
    """Compiles the network of a build, with the same configs and the weights of `anole.extract.weights`.

    Args:
        build: the description of a build of a torch model.
        folder: where the other build is written.

    Raises:
        ExtractError: the network cannot be loaded.
        BuildError: the network has changed, or cannot be compiled with these weights.
    """
    model = build.model_spec
    settings = BuildSettings(build.name, build.preset, build.trials, build.shared, build.seed)
    receipts = {
        task.key: Receipt(task.key, task.run_key or "", build.trials, task.config, task.latency_s)
        for task in build.tasks
        if task.matched == "tuned"
    }
    # What is not tuned was said when the build itself was compiled.
    logging.disable(logging.WARNING)
    try:
        imported = load_model(model, "drawn")
        return compile_build(model, _manifest(build), settings, receipts, folder, imported)
    finally:
        logging.disable(logging.NOTSET)


def _manifest(build: Build) -> Manifest:
    model = build.model_spec
    tasks = tuple(ListedTask(each.key, each.label, each.flop, each.weight, each.layers) for each in build.tasks)
    origin = Origin(build.entry, build.target_description, {})
    flop = sum(task.flop * task.weight for task in tasks)
    return Manifest(model.name, build.target, model.source, model.inputs, origin, tasks, flop)
