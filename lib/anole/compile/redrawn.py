"""Compiles a build once more with other weights, for builds whose own weights let no comparison fail."""

from __future__ import annotations

import logging
from pathlib import Path

from anole.compile.build import BuildSettings, compile_build
from anole.compile.recorded import recorded_manifest, recorded_receipts
from anole.documents.build import Build
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
    # What is not tuned was said when the build itself was compiled.
    logging.disable(logging.WARNING)
    try:
        imported = load_model(model, "drawn")
        return compile_build(model, recorded_manifest(build), settings, recorded_receipts(build), folder, imported)
    finally:
        logging.disable(logging.NOTSET)
