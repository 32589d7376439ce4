"""A check after compiling: whether a build's rounding error is so large that the evaluate stage might reject it."""

from __future__ import annotations

import logging
import os
import tempfile
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from anole.documents.build import read_build
from anole.errors import AnoleError
from anole.evaluate.comparison import MIN_VARIATION, Comparison, check_inputs, compare_outputs
from anole.evaluate.correctness.check import MAX_RELATIVE_ERROR, rounding_of
from anole.evaluate.engine_factories import start_reference
from anole.targets import get_device, get_target

_log = logging.getLogger(__name__)

_MAX_SAFE_ERROR = MAX_RELATIVE_ERROR / 2
"""Half of the evaluation's limit: other references, which round differently, should agree with the build, too."""


def has_large_rounding_error(folder: Path) -> bool:
    """Whether the evaluate stage might reject a build's outputs, judging by the same inputs.

    The reference is torch or, for an ONNX file, ONNX Runtime. The result is False if the build or the reference cannot
    run on this machine. It is True if an output does not depend on the input, since comparing it cannot reveal errors.
    Everything runs in a separate process: TVM and torch set their number of threads when they start. Low-precision
    builds are not checked: the tile size makes no difference compared with their rounding.
    """
    build = read_build(folder)
    target = get_target(build.target_description)
    if target.absence() is not None or rounding_of(build):
        return False
    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            comparison = process.submit(_compare, folder).result()
    except (AnoleError, BrokenExecutor):
        # The evaluate stage reports the problem.
        return False
    _log.info("%s: relative error %.1e before it is evaluated", build.name, comparison.error)
    return not comparison.error <= _MAX_SAFE_ERROR or comparison.output_variation < MIN_VARIATION


def _compare(folder: Path) -> Comparison:
    from anole.evaluate.network_runner import runner_of

    build = read_build(folder)
    target = get_device(build.target_description)
    os.environ.update(target.environment())
    samples = check_inputs(build)
    outputs = runner_of(target).engine(folder, samples[0]).compute_each(samples)
    name = "onnxruntime" if build.model_spec.scheme == "onnx" else "torch"
    with tempfile.TemporaryDirectory() as scratch:
        return compare_outputs(outputs, start_reference(name, folder, Path(scratch)).compute_each(samples))
