"""Evaluation of a build: whether it is right, and how fast it is beside PyTorch and ONNX Runtime."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anole.documents.build import Build, read_build
from anole.documents.evaluation import Evaluation, Latency, write_evaluation
from anole.errors import BuildError
from anole.evaluate.comparison import draw_inputs, relative_error
from anole.evaluate.interleave import Pace, time_interleaved
from anole.host.machine import host_facts, software_versions
from anole.measure.site import Site, site_of
from anole.record import utc_now
from anole.targets import get_target
from anole.targets.base import Device, Simulator

_log = logging.getLogger(__name__)

MAX_RELATIVE_ERROR = 1e-4
"""The L2 distance from a reference, relative to the reference's length, above which a build is wrong."""


def evaluate_build(
    folder: Path,
    output: Path,
    max_relative_error: float = MAX_RELATIVE_ERROR,
    pace: Pace | None = None,
) -> Evaluation:
    """Compares a build with its references, on the same inputs and threads, and times all of them in turns.

    Call it in a process of its own: TVM, torch and ONNX Runtime take their number of threads when they start.

    Args:
        folder: of the build.
        output: the file that the evaluation is written to, whether the build is right or wrong.
        max_relative_error: what a right build may differ from a reference.
        pace: how long is measured.

    Returns:
        The evaluation, as in the file; it says why where the device is absent and nothing can be run.

    Raises:
        DocumentError: the folder is not a build.
        BuildError: the build cannot run here, or is wrong.
        ExtractError: the model, which is the reference, cannot be loaded.
    """
    build = read_build(folder)
    target = get_target(build.target_description)
    inputs = draw_inputs(build)
    if isinstance(target, Simulator):
        from anole.evaluate.accelerator import evaluate_simulated

        evaluation = _evaluation(build, 1, evaluate_simulated(folder, build, inputs))
        write_evaluation(output, evaluation)
        return evaluation
    if (absence := target.absence()) is not None:
        _log.warning("%s: is compiled, but neither checked nor timed: %s", build.name, absence)
        evaluation = _evaluation(build, target.threads, [], absence)
        write_evaluation(output, evaluation)
        return evaluation
    threads = target.threads
    from anole.evaluate.engines import build_engine, reference_engines

    with _on_device(target) as site, reference_engines(build.model_spec, inputs, threads, target.runs_on) as references:
        compiled = build_engine(folder, inputs, target.runs_on, threads)
        found = compiled.compute()
        errors = {engine.name: relative_error(found, engine.compute()) for engine in references}
        with site.timing():
            runs = {engine.name: engine.run for engine in (compiled, *references)}
            times = time_interleaved(runs, pace or Pace())
    evaluation = _evaluation(build, threads, [_latency(name, error, times) for name, error in errors.items()])
    write_evaluation(output, evaluation)
    _report(evaluation)
    for name, error in errors.items():
        if not error <= max_relative_error:
            raise BuildError(
                f"{folder}: computes something else than {name}: relative error {error:.2g}; "
                f"at most {max_relative_error:g} is allowed"
            )
    return evaluation


@contextmanager
def _on_device(target: Device) -> Iterator[Site]:
    """Prepares this process for a device; to be entered before TVM and torch start."""
    with site_of(target) as site:
        os.environ.update({**target.environment(), **site.environment()})
        yield site


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


def _latency(name: str, error: float, times: Mapping[str, Sequence[NDArray[np.float64]]]) -> Latency:
    own, reference = np.concatenate(times["build"]), np.concatenate(times[name])
    rounds = zip(times["build"], times[name], strict=True)
    return Latency(
        reference=name,
        latency_s=float(np.median(own)),
        latency_std_s=float(np.std(own)),
        reference_latency_s=float(np.median(reference)),
        reference_latency_std_s=float(np.std(reference)),
        # A shared machine may change its speed between two rounds, and seldom within one.
        speedup=float(np.median([np.median(theirs) / np.median(mine) for mine, theirs in rounds])),
        relative_error=error,
        rounds=len(times["build"]),
    )


def _report(evaluation: Evaluation) -> None:
    _log.info("%s: %.1f %% of the work is tuned", evaluation.build, 100 * evaluation.coverage_share)
    for latency in evaluation.latencies:
        _log.info(
            "%s: %.3f ms beside %.3f ms of %s (%.2fx), relative error %.1e",
            *(evaluation.build, 1e3 * latency.latency_s, 1e3 * latency.reference_latency_s, latency.reference),
            *(latency.speedup, latency.relative_error),
        )
