"""Recompile a build's network with the same configs, from the build's description."""

from __future__ import annotations

import logging
from pathlib import Path

from anole.compiler.build import BuildSettings, compile_build
from anole.documents.build import Build
from anole.documents.manifest import ListedTask, Manifest, Origin
from anole.documents.receipt import Receipt, Receipts
from anole.extract.load import load_model


def manifest_of_build(build: Build) -> Manifest:
    """Return the manifest of a build's network, without the digest of its files."""
    model = build.model_spec
    tasks = tuple(ListedTask(task.key, task.label, task.flop, task.weight, task.layers) for task in build.tasks)
    origin = Origin(build.entry, build.target_description, {})
    flop = sum(task.flop * task.weight for task in tasks)
    return Manifest(model.name, build.target, model.source, model.inputs, origin, tasks, flop)


def recorded_receipts(build: Build) -> Receipts:
    """Return a receipt for each task with the config that was compiled, tuned or not."""
    return {
        task.key: Receipt(task.key, task.run_key or "", build.trials, task.config or task.unscheduled, task.latency_s)
        for task in build.tasks
        if task.config is not None or task.unscheduled is not None
    }


def compile_with_random_weights(build: Build, folder: Path) -> Build:
    """Compile a torch model's build again, with the random weights of `anole.extract.weights`.

    This is for builds whose outputs hardly depend on the input: with their trained weights, any comparison would pass.

    Raises:
        ExtractError: the network cannot be loaded.
        BuildError: the network has changed, or cannot be compiled with these weights.
    """
    settings = BuildSettings(build.name, build.preset, build.trials, build.shared, build.seed)
    # Untuned layers were already reported when the build itself was compiled.
    logging.disable(logging.WARNING)
    try:
        manifest, receipts = manifest_of_build(build), recorded_receipts(build)
        randomized = load_model(build.model_spec, random_weights=True)
        return compile_build(build.model_spec, manifest, settings, receipts, folder, randomized)
    finally:
        logging.disable(logging.NOTSET)
