"""The evaluate stage: checks a build's outputs and times it against PyTorch and ONNX Runtime."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from anole.documents.build import Build, read_build, refuse_other_files
from anole.documents.evaluation import Evaluation, Latency, write_evaluation
from anole.errors import AnoleError, BuildError
from anole.evaluate.comparison import LEAST_VARIATION, draw_inputs
from anole.evaluate.interleave import Pace
from anole.evaluate.network_runner import NetworkRunner
from anole.evaluate.perturbed import LARGEST_CHANCE, MOST_SENSITIVE, chance
from anole.evaluate.slow_kernels import warn_of_slow_kernels
from anole.evaluate.under_load import LOAD_PACE
from anole.host.machine import host_facts, software_versions
from anole.record import utc_now
from anole.targets import get_target
from anole.targets.base import named_object
from anole.targets.shared.algorithm_names import WINOGRAD

_log = logging.getLogger(__name__)

CompileRedrawn = Callable[[Build, Path], Build]

MAX_RELATIVE_ERROR = 1e-4
"""The largest allowed L2 distance from a reference: relative to the reference's L2 norm, and also to how much the
reference's outputs depend on the input. A reference that is itself farther from the truth is overruled by the
network in double precision, from which the same is allowed. One that multiplies rounding is compared on average, see
`anole.evaluate.perturbed`."""

_AS_INEXACT = 3.0
"""How much farther than the most exact reference a build may be from the network in double precision: the order of a
sum changes its rounding, and some networks make much of that."""

_MOST_INEXACT = 3e-3
"""The error of a reference beyond which it allows nothing: noise in a layer's weights would not be found any more."""


def evaluate_network(
    folder: Path,
    output: Path,
    compile_redrawn: CompileRedrawn,
    pace: Pace | None = None,
    neighbours: Sequence[int] = (),
) -> None:
    """Evaluates a build, times its kernels, and warns of those that are far from the machine's roofline.

    Args and errors are those of `evaluate_build`.
    """
    evaluation = evaluate_build(folder, output, pace=pace, compile_redrawn=compile_redrawn, neighbours=neighbours)
    if (profile := warn_of_slow_kernels(folder)) is not None:
        write_evaluation(output, replace(evaluation, kernel_profile=profile))
    _log.info("%s", evaluation)


def evaluate_build(
    folder: Path,
    output: Path,
    max_relative_error: float = MAX_RELATIVE_ERROR,
    pace: Pace | None = None,
    compile_redrawn: CompileRedrawn | None = None,
    neighbours: Sequence[int] = (),
    load_pace: Pace = LOAD_PACE,
) -> Evaluation:
    """Compares a build with its references, on the same inputs and threads, and times all of them in turns.

    Call it in a separate process: TVM, torch and ONNX Runtime set their number of threads when they start.

    Args:
        folder: folder of the build.
        output: where the evaluation is written, whether the outputs are correct or not.
        max_relative_error: the largest allowed difference from a reference.
        pace: how long to measure.
        compile_redrawn: compiles a build once more with other weights, see `anole.compile.redrawn`; called for torch
            models whose outputs do not depend on their input, and None if it shall not be.
        neighbours: numbers of busy processes beside which a build that is right is timed once more, see
            `anole.evaluate.under_load`.
        load_pace: how long to measure beside each number of them.

    Returns:
        The evaluation, as in the file; if the device is absent, it gives the reason and no measurements.

    Raises:
        DocumentError: the folder does not hold a build, or other files than its description tells of.
        BuildError: the build cannot run on this machine, or its outputs are wrong.
        ExtractError: the model, which is the reference, cannot be loaded.
    """
    build = read_build(folder)
    refuse_other_files(folder, build)
    target = get_target(build.target_description)
    runner: NetworkRunner = named_object(target.networks.runner)(target)
    if neighbours and runner.is_exact:
        raise BuildError(f"{folder}: is for a simulator, which has no latency under load; leave out the neighbours")
    if (absence := target.absence()) is not None:
        _log.warning("%s: is compiled but neither checked nor timed: %s", build.name, absence)
        evaluation = _evaluation(build, runner.threads, [], absence)
        write_evaluation(output, evaluation)
        return evaluation
    latencies = runner.compare(folder, build, draw_inputs(build), pace or Pace())
    evaluation = _evaluation(build, runner.threads, latencies)
    if not runner.is_exact:
        if _is_constant(evaluation) and compile_redrawn is not None and build.model_spec.scheme == "torch":
            evaluation = replace(evaluation, redrawn_error=_redrawn_error(runner, build, compile_redrawn))
        if _far_references(evaluation, max_relative_error):
            own, reference = _exact_errors(runner, folder, build)
            evaluation = replace(evaluation, exact_error=own, reference_exact_error=reference)
            if not _is_near_exact(evaluation, max_relative_error):
                evaluation = _averaged(runner, folder, build, evaluation, max_relative_error)
    write_evaluation(output, evaluation)
    _log.info("%s: %.1f %% of the work is tuned", build.name, 100 * build.coverage.share)
    if not runner.is_exact:
        _refuse_errors(folder, evaluation, max_relative_error, _remedy(build))
    if neighbours:
        references = [latency.reference for latency in latencies]
        under_load = runner.time_under_load(folder, build, references, neighbours, load_pace)
        evaluation = replace(evaluation, load_latencies=tuple(under_load))
        write_evaluation(output, evaluation)
    return evaluation


def _is_constant(evaluation: Evaluation) -> bool:
    """Whether an output of the network does not depend on the input."""
    return any((latency.output_variation or 0.0) < LEAST_VARIATION for latency in evaluation.latencies)


def _redrawn_error(runner: NetworkRunner, build: Build, compile_redrawn: CompileRedrawn) -> float | None:
    """Returns the error of the same network with other weights; None if there is none to compare."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "redrawn")
        try:
            comparison = runner.check_redrawn(folder, compile_redrawn(build, folder))
        except AnoleError as error:
            _log.warning("%s: could not be compared with other weights: %s", build.name, error)
            return None
    shown = comparison.output_variation >= LEAST_VARIATION
    _log.info(
        "%s: with weights drawn so that the outputs depend on the input, they %s: error relative to that %.1e",
        *(build.name, "do" if shown else "still do not all", comparison.variation_error),
    )
    return comparison.variation_error


def _errors(latency: Latency) -> dict[str, float]:
    """Returns the errors beside a reference that decide whether a build is right, by their name."""
    return {
        "relative error": latency.relative_error,
        "error relative to how much they depend on the input": latency.variation_error or 0.0,
    }


def _far_references(evaluation: Evaluation, most: float) -> list[Latency]:
    """Returns the references from which the outputs are too far."""
    return [latency for latency in evaluation.latencies if not max(_errors(latency).values()) <= most]


def _exact_errors(runner: NetworkRunner, folder: Path, build: Build) -> tuple[float | None, float | None]:
    """Returns the errors of the build and of a reference beside double precision; None if there is none to compare."""
    _log.info("%s: differs from a reference; computing the network in double precision, which may take minutes", folder)
    try:
        own, reference = runner.compare_exactly(folder, build)
    except AnoleError as error:
        _log.warning("%s: %s", build.name, error)
        return None, None
    return own.error, reference.error


def _averaged(runner: NetworkRunner, folder: Path, build: Build, evaluation: Evaluation, most: float) -> Evaluation:
    """Returns the evaluation with the comparison of means with the first reference that is too far."""
    reference = _far_references(evaluation, most)[0].reference
    _log.info("%s: differs from %s; comparing both on many nearby inputs, which may take minutes", folder, reference)
    try:
        found = runner.compare_means(folder, build, reference)
    except AnoleError as error:
        _log.warning("%s: %s", build.name, error)
        return evaluation
    return replace(
        evaluation,
        reference_sensitivity=found.sensitivity,
        nearby_error=found.nearby_error,
        averaged_error=found.averaged_error,
        averaged_draws=found.draws,
    )


def _is_near_exact(evaluation: Evaluation, most: float) -> bool:
    """Whether a build is as near to the network in double precision as single precision lets it be."""
    return evaluation.exact_error is not None and evaluation.exact_error <= _allowed(evaluation, most)


def _chance(evaluation: Evaluation) -> float | None:
    """Returns the largest error of means that may be chance; None if the reference's sensitivity explains no error."""
    own, error, draws = evaluation.reference_sensitivity, evaluation.nearby_error, evaluation.averaged_draws
    if own is None or error is None or draws is None or error > MOST_SENSITIVE * own:
        return None
    return chance(error, draws)


def _is_near_on_average(evaluation: Evaluation) -> bool:
    """Whether a build's means are as near to a reference's as chance lets them be, and noise would have been found."""
    allowed, error = _chance(evaluation), evaluation.averaged_error
    return allowed is not None and error is not None and error <= allowed <= LARGEST_CHANCE


def _doubt(evaluation: Evaluation) -> str:
    """Returns in words what else was found of a build that is too far from a reference."""
    found, allowed = [], _chance(evaluation)
    if evaluation.exact_error is not None:
        found.append(f"{evaluation.exact_error:.2g} from those in double precision")
    if evaluation.reference_sensitivity:
        found.append(
            f"those of the reference differ by {evaluation.reference_sensitivity:.2g} if its inputs are rounded anew"
        )
    if allowed is not None:
        found.append(
            f"the means over {evaluation.averaged_draws} nearby inputs differ by {evaluation.averaged_error:.2g}, "
            f"of which {allowed:.2g} may be chance"
        )
        if allowed > LARGEST_CHANCE:
            found.append(f"correctness is not shown beyond {allowed:.2g}")
    return f" ({'; '.join(found)})" if found else ""


def _allowed(evaluation: Evaluation, most: float) -> float:
    """Returns the largest error beside double precision: more where single precision itself is inexact."""
    of_reference = evaluation.reference_exact_error or 0.0
    return max(most, _AS_INEXACT * of_reference) if of_reference <= _MOST_INEXACT else most


def _remedy(build: Build) -> str:
    """Returns what a user can do if it is rounding that makes outputs differ; empty if nothing."""
    rounds_more = any(task.config is not None and task.config.get("algorithm") == WINOGRAD for task in build.tasks)
    if not rounds_more or build.runs_on != "cpu":
        return ""
    return "; with `exact: true`, a target's convolutions are computed without Winograd's method, which rounds more"


def _refuse_errors(folder: Path, evaluation: Evaluation, most: float, remedy: str = "") -> None:
    """Raises a `BuildError` if outputs are too far from a reference's, and not near those in double precision."""
    for latency in _far_references(evaluation, most):
        errors = _errors(latency)
        if _is_near_exact(evaluation, most):
            _log.warning(
                "%s: the outputs differ from those of %s by %.2g, and from those in double precision by only %.2g; "
                "the most exact reference differs from these by %.2g",
                *(folder, latency.reference, max(errors.values())),
                *(evaluation.exact_error, evaluation.reference_exact_error),
            )
            continue
        if _is_near_on_average(evaluation):
            _log.warning(
                "%s: the outputs differ from those of %s by %.2g, and these by %.2g if its inputs are rounded anew; "
                "the means over %d nearby inputs differ by only %.2g, which may be chance",
                *(folder, latency.reference, max(errors.values()), evaluation.reference_sensitivity),
                *(evaluation.averaged_draws, evaluation.averaged_error),
            )
            continue
        kind = next(kind for kind, error in errors.items() if not error <= most)
        raise BuildError(
            f"{folder}: the outputs differ from those of {latency.reference}: "
            f"{kind} {errors[kind]:.3g}; at most {most:g} is allowed{_doubt(evaluation)}{remedy}"
        )
    if not (evaluation.redrawn_error or 0.0) <= most:
        raise BuildError(
            f"{folder}: with other weights, drawn so that the outputs depend on the input, they differ from those of "
            f"torch: error {evaluation.redrawn_error:.2g} relative to that; at most {most:g} is allowed"
        )


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
