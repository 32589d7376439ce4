"""Tells whether rounding takes a new build so far from its model that evaluating might refuse it."""

from __future__ import annotations

import logging
import os
import tempfile
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from anole.documents.build import read_build
from anole.errors import AnoleError
from anole.evaluate.comparison import MIN_VARIATION, Comparison, compare_outputs, draw_samples
from anole.evaluate.correctness import MAX_RELATIVE_ERROR, rounding_of
from anole.evaluate.engine_factories import start_reference
from anole.targets import get_device, get_target

_log = logging.getLogger(__name__)

_MAX_RELATIVE_ERROR = MAX_RELATIVE_ERROR / 2
"""The largest error at which no other reference, which rounds in its own way, is too far from the build."""


def rounds_too_much(folder: Path) -> bool:
    """Whether a build's outputs are not clearly those of its model, by the inputs on which it is evaluated.

    The model is run by torch or, if it is an ONNX file, by ONNX Runtime. What cannot be run here does not count, and
    outputs that do not depend on the input show nothing. Both run in a process of its own: TVM and torch set their
    number of threads when they start. Builds of narrow numbers round so much more that tiles make no difference.
    """
    build = read_build(folder)
    target = get_target(build.target_description)
    if target.absence() is not None or rounding_of(build):
        return False
    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as apart:
            found = apart.submit(_compare, folder).result()
    except (AnoleError, BrokenExecutor):
        # Evaluating says what is wrong.
        return False
    _log.info("%s: relative error %.1e before it is evaluated", build.name, found.error)
    return not found.error <= _MAX_RELATIVE_ERROR or found.output_variation < MIN_VARIATION


def _compare(folder: Path) -> Comparison:
    from anole.evaluate.network_runner import runner_of

    build = read_build(folder)
    target = get_device(build.target_description)
    os.environ.update(target.environment())
    samples = draw_samples(build)
    found = runner_of(target).engine(folder, samples[0]).compute_each(samples)
    name = "onnxruntime" if build.model_spec.scheme == "onnx" else "torch"
    with tempfile.TemporaryDirectory() as scratch:
        return compare_outputs(found, start_reference(name, folder, Path(scratch)).compute_each(samples))
