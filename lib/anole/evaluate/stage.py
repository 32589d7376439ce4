"""The evaluate stage: checks a build's outputs and times it against PyTorch and ONNX Runtime."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from anole.documents.build import Build, read_build
from anole.documents.evaluation import Evaluation, Latency, write_evaluation
from anole.errors import BuildError
from anole.evaluate.comparison import draw_inputs
from anole.evaluate.interleave import Pace
from anole.evaluate.network_runner import NetworkRunner
from anole.host.machine import host_facts, software_versions
from anole.record import utc_now
from anole.targets import get_target
from anole.targets.base import named_object

_log = logging.getLogger(__name__)

MAX_RELATIVE_ERROR = 1e-4
"""The largest allowed L2 distance from a reference, relative to the reference's L2 norm."""


def evaluate_build(
    folder: Path,
    output: Path,
    max_relative_error: float = MAX_RELATIVE_ERROR,
    pace: Pace | None = None,
) -> Evaluation:
    """Compares a build with its references, on the same inputs and threads, and times all of them in turns.

    Call it in a separate process: TVM, torch and ONNX Runtime set their number of threads when they start.

    Args:
        folder: folder of the build.
        output: where the evaluation is written, whether the outputs are correct or not.
        max_relative_error: the largest allowed difference from a reference.
        pace: how long to measure.

    Returns:
        The evaluation, as in the file; if the device is absent, it gives the reason and no measurements.

    Raises:
        DocumentError: the folder does not hold a build.
        BuildError: the build cannot run on this machine, or its outputs are wrong.
        ExtractError: the model, which is the reference, cannot be loaded.
    """
    build = read_build(folder)
    target = get_target(build.target_description)
    runner: NetworkRunner = named_object(target.networks.runner)(target)
    if (absence := target.absence()) is not None:
        _log.warning("%s: is compiled but neither checked nor timed: %s", build.name, absence)
        evaluation = _evaluation(build, runner.threads, [], absence)
        write_evaluation(output, evaluation)
        return evaluation
    latencies = runner.compare(folder, build, draw_inputs(build), pace or Pace())
    evaluation = _evaluation(build, runner.threads, latencies)
    write_evaluation(output, evaluation)
    _log.info("%s: %.1f %% of the work is tuned", build.name, 100 * build.coverage.share)
    for latency in latencies if not runner.is_exact else ():
        if not latency.relative_error <= max_relative_error:
            raise BuildError(
                f"{folder}: the outputs differ from those of {latency.reference}: "
                f"relative error {latency.relative_error:.2g}; at most {max_relative_error:g} is allowed"
            )
    return evaluation


def _evaluation(build: Build, threads: int, latencies: Sequence[Latency], absence: str | None = None) -> Evaluation:
    return Evaluation(
        build=build.name,
        created_at=utc_now(),
        threads=threads,
        host=host_facts(),
        versions=software_versions(),
        coverage_share=build.coverage.share,
        latencies=tuple(latencies),
        absence=absence,
    )
