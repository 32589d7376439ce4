"""The correctness check of a build: compared with references, with a more exact network, and on average.

References come first. If a low-precision build differs, a reference with its rounding decides. For other builds, the
network in double precision decides, or, for a quantized file, ONNX Runtime without fusion. If a reference amplifies
rounding errors, means over many inputs are compared, see `anole.evaluate.correctness.perturbation`.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from anole.documents.build import Build
from anole.documents.evaluation import Evaluation, Latency
from anole.errors import AnoleError, BuildError
from anole.evaluate.comparison import MIN_VARIATION, check_inputs, compare_outputs
from anole.evaluate.correctness.low_precision import low_precision_engine, unfused_engine
from anole.evaluate.correctness.perturbation import (
    MAX_CHANCE_ERROR,
    MAX_ERROR_RATIO,
    MeanComparison,
    chance,
    compare_means,
)
from anole.evaluate.engines import Arrays
from anole.evaluate.network_runner import NetworkRunner
from anole.targets import kind_of
from anole.targets.kind import Rounding

_log = logging.getLogger(__name__)

CompileWithRandomWeights = Callable[[Build, Path], object]
"""A function that compiles a build again, with random weights, into a folder, see `anole.compiler.recorded`."""

MAX_RELATIVE_ERROR = 1e-4
"""The largest allowed L2 distance from a reference, relative to the reference's L2 norm and to its variation with the
input. The distance from the network in double precision has this limit if the references are as exact."""

_LOW_PRECISION_LIMIT = 1e-2
"""The same limit for builds that multiply bfloat16, with rounding errors of 1/256 of a value, or store low-bit weights.
Also the limit for the means of int8 builds: in deep networks, single outputs differ so much that a comparison of a few
minutes cannot detect smaller errors."""

_MAX_LOW_PRECISION_ERROR = 0.3
"""Max error that the rounding of a reference excuses: even a missing layer would hardly cause a larger one."""

_REFERENCE_ERROR_FACTOR = 3.0
"""Max error of a build relative to the error of the most exact reference, or of a low-precision one. Rounding depends
on the order of a sum, and some networks amplify it."""

_MAX_UNFUSED_ERROR = 0.1
"""Max error of a reference of an int8 build compared with its file without fusion; of the build if all have more."""

_MAX_REFERENCE_ERROR = 3e-3
"""Max error of a float32 reference that may excuse an error of a build: above it, noise in weights is not detected."""


def add_evidence(
    runner: NetworkRunner,
    folder: Path,
    build: Build,
    evaluation: Evaluation,
    compile_with_random_weights: CompileWithRandomWeights | None,
) -> Evaluation:
    """Add further evidence to the evaluation of a build whose references do not show that it is correct.

    Log a warning for each check that could not run. If `compile_with_random_weights` is not None, it is called for
    models from torch factories whose outputs do not depend on their input.
    """
    if _is_constant(evaluation) and compile_with_random_weights is not None and build.model_spec.scheme == "torch":
        with _log_errors(build, "could not be compared with random weights: "):
            evaluation = replace(evaluation, redrawn_error=_redrawn_error(runner, build, compile_with_random_weights))
    references = _far_references(build, evaluation)
    if _best_agreeing_reference(build, evaluation) is not None:
        return evaluation
    if references and (rounding := rounding_of(build)):
        with _log_errors(build):
            ref_error, build_error = _low_precision_errors(runner, folder, build)
            # Rounded weights alone excuse no error: the rounded reference must give the same outputs.
            return replace(evaluation, narrow_error=ref_error if rounding.dtype else None, rounded_error=build_error)
    if references:
        with _log_errors(build):
            exact_error, reference_error = _exact_errors(runner, folder, build)
            evaluation = replace(evaluation, exact_error=exact_error, reference_exact_error=reference_error)
        if not _is_near_exact(build, evaluation):
            with _log_errors(build):
                evaluation = replace(evaluation, **vars(_mean_errors(runner, folder, build, references[0].reference)))
    return evaluation


def reject_wrong(folder: Path, build: Build, evaluation: Evaluation) -> None:
    """Raise a `BuildError` if outputs are too far from a reference without other evidence, or with random weights."""
    max_error = _max_error(build)
    for latency in _far_references(build, evaluation):
        errors = _errors(latency)
        if (reason := _reason_to_accept(build, evaluation)) is not None:
            _log.warning(
                "%s: the outputs differ from %s's by %.2g, and %s",
                *(folder, latency.reference, max(errors.values()), reason),
            )
            continue
        kind = next(kind for kind, error in errors.items() if not error <= max_error)
        raise BuildError(
            f"{folder}: the outputs differ from {latency.reference}'s: {kind} {errors[kind]:.3g}; "
            f"at most {max_error:g} is allowed{_describe_evidence(build, evaluation)}{rounding_remedy(build)}"
        )
    if not (evaluation.redrawn_error or 0.0) <= max_error:
        raise BuildError(
            f"{folder}: with random weights, to make the outputs depend on the input, the outputs differ from "
            f"torch's: error {evaluation.redrawn_error:.2g} relative to variation; at most {max_error:g} is allowed"
        )


def rounding_of(build: Build) -> Rounding | None:
    """Return the rounding of activations or weights in a build but not in its references; None if there is none."""
    return kind_of(build.target_description).rounding(build.target_description)


def _max_error(build: Build) -> float:
    """Return the largest error compared with a reference that needs no other evidence."""
    return _LOW_PRECISION_LIMIT if rounding_of(build) else MAX_RELATIVE_ERROR


def _is_int8(build: Build) -> bool:
    """Whether the network quantizes activations; then rounding errors may flip quantized values."""
    return any(kernel.dtype == "uint8" for kernel in build.kernels or ())


def _max_chance_error(build: Build) -> float:
    """Return the largest difference of means that may be attributed to chance."""
    return _LOW_PRECISION_LIMIT if _is_int8(build) else MAX_CHANCE_ERROR


def rounding_remedy(build: Build) -> str:
    """Return advice to users for outputs that differ due to rounding; empty if there is none."""
    configs = [task.config for task in build.tasks if task.config is not None]
    return kind_of(build.target_description).rounding_remedy(configs)


@contextmanager
def _log_errors(build: Build, problem: str = "") -> Iterator[None]:
    """Log an AnoleError in the block as a warning, and continue after the block."""
    try:
        yield
    except AnoleError as error:
        _log.warning("%s: %s%s", build.name, problem, error)


def _is_constant(evaluation: Evaluation) -> bool:
    """Whether an output of the network does not depend on the input."""
    return any((latency.output_variation or 0.0) < MIN_VARIATION for latency in evaluation.latencies)


def _errors(latency: Latency) -> dict[str, float]:
    """Return the errors that decide whether a build agrees with a reference, by name."""
    return {
        "relative error": latency.relative_error,
        "error relative to their variation with the input": latency.variation_error or 0.0,
    }


def _far_references(build: Build, evaluation: Evaluation) -> list[Latency]:
    """Return the references whose error exceeds the limit."""
    return [latency for latency in evaluation.latencies if not max(_errors(latency).values()) <= _max_error(build)]


def _best_agreeing_reference(build: Build, evaluation: Evaluation) -> Latency | None:
    """Return the reference that a build agrees with best; None if all errors exceed the limit."""
    best = min(evaluation.latencies, key=lambda latency: max(_errors(latency).values()), default=None)
    return best if best is not None and max(_errors(best).values()) <= _max_error(build) else None


def _redrawn_error(runner: NetworkRunner, build: Build, compile_with_random_weights: CompileWithRandomWeights) -> float:
    """Return the error of the same network with random weights, compared with torch on the CPU."""
    import torch

    from anole.evaluate.engines import torch_engine
    from anole.evaluate.torch_wrappers import ByName
    from anole.extract.torch import make_network

    samples = check_inputs(build)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "random")
        compile_with_random_weights(build, folder)
        network = ByName(build.model_spec, make_network(build.model_spec, random_weights=True))
        reference = torch_engine(network, tuple(map(torch.from_numpy, samples[0])))
        outputs = runner.engine(folder, samples[0]).compute_each(samples)
    comparison = compare_outputs(outputs, reference.compute_each(samples))
    all_vary = comparison.output_variation >= MIN_VARIATION
    _log.info(
        "%s: with random weights, %s on the input: error relative to their variation %.1e",
        *(build.name, "all outputs depend" if all_vary else "not all outputs depend", comparison.variation_error),
    )
    return comparison.variation_error


def _low_precision_errors(runner: NetworkRunner, folder: Path, build: Build) -> tuple[float, float]:
    """Compare a low-precision reference with the original one, and the build with the former; return both errors."""
    _log.info("%s: differs from a reference; computing the reference with the build's precision", build.name)
    samples = check_inputs(build)
    with (
        runner.references(build, samples[0]) as references,
        low_precision_engine(build.model_spec, build.target_description, samples[0], runner.threads) as low_precision,
    ):
        expected = low_precision.compute_each(samples)
        reference_error = compare_outputs(expected, references[0].compute_each(samples)).error
    return reference_error, compare_outputs(runner.engine(folder, samples[0]).compute_each(samples), expected).error


def _exact_errors(runner: NetworkRunner, folder: Path, build: Build) -> tuple[float, float]:
    """Return the errors of a build and of its most exact reference, both compared with the exact network."""
    _log.info("%s: differs from a reference; computing the network %s, which may take minutes", folder, _method(build))
    samples = check_inputs(build)
    exact = _exact_outputs(runner, build, samples)
    with runner.references(build, samples[0]) as references:
        reference_error = min(compare_outputs(reference.compute_each(samples), exact).error for reference in references)
    return compare_outputs(runner.engine(folder, samples[0]).compute_each(samples), exact).error, reference_error


def _method(build: Build) -> str:
    """Describe the method of `_exact_outputs`."""
    return "without fusing its operators" if _is_int8(build) else "in double precision"


def _exact_outputs(runner: NetworkRunner, build: Build, samples: list[Arrays]) -> list[Arrays]:
    """Return the outputs of the network in double precision, or, if it is quantized, of its file without fusion."""
    from anole.evaluate.correctness.double_precision import compute_in_double

    if not _is_int8(build):
        return compute_in_double(build.model_spec, samples)
    with unfused_engine(build.model_spec, samples[0], runner.threads) as engine:
        return engine.compute_each(samples)


def _mean_errors(runner: NetworkRunner, folder: Path, build: Build, reference: str) -> MeanComparison:
    """Compare a build with a reference on average over nearby inputs."""
    _log.info("%s: differs from %s; comparing both on many nearby inputs, which may take minutes", folder, reference)
    samples = check_inputs(build)
    with runner.references(build, samples[0]) as references:
        engine = next(candidate for candidate in references if candidate.name == reference)
        return compare_means(runner.engine(folder, samples[0]), engine, samples, _max_chance_error(build))


def _is_near_exact(build: Build, evaluation: Evaluation) -> bool:
    """Whether a build is about as close to the exact network as its most exact reference, or within the limit."""
    error = evaluation.reference_exact_error or 0.0
    limit, fallback = (
        (_MAX_UNFUSED_ERROR, _MAX_UNFUSED_ERROR) if _is_int8(build) else (_MAX_REFERENCE_ERROR, MAX_RELATIVE_ERROR)
    )
    max_error = max(MAX_RELATIVE_ERROR, _REFERENCE_ERROR_FACTOR * error) if error <= limit else fallback
    return evaluation.exact_error is not None and evaluation.exact_error <= max_error


def _chance_error(evaluation: Evaluation) -> float | None:
    """Return the max error of means that may be due to chance; None if the reference is not sensitive enough."""
    sensitivity, error, draws = evaluation.reference_sensitivity, evaluation.nearby_error, evaluation.averaged_draws
    if sensitivity is None or error is None or draws is None or error > MAX_ERROR_RATIO * sensitivity:
        return None
    return chance(error, draws)


def _is_near_on_average(evaluation: Evaluation, max_chance_error: float) -> bool:
    """Whether means differ by no more than chance allows, after enough inputs to detect noise in the weights."""
    chance_error, error = _chance_error(evaluation), evaluation.averaged_error
    return chance_error is not None and error is not None and error <= chance_error <= max_chance_error


def _reason_to_accept(build: Build, evaluation: Evaluation) -> str | None:
    """Explain why a build that is too far from a reference is accepted; None if it is not."""
    if (best := _best_agreeing_reference(build, evaluation)) is not None:
        return f"from {best.reference}'s by only {max(_errors(best).values()):.2g}: the references disagree"
    if (rounded_error := evaluation.rounded_error) is not None and rounded_error <= MAX_RELATIVE_ERROR:
        return f"from a reference that rounds in the same way by only {rounded_error:.2g}"
    if (rounding_error := evaluation.narrow_error) is not None:
        error = max(max(_errors(latency).values()) for latency in evaluation.latencies)
        if error <= min(_REFERENCE_ERROR_FACTOR * rounding_error, _MAX_LOW_PRECISION_ERROR):
            return f"the reference differs from itself by {rounding_error:.2g} if it rounds in the same way"
    if _is_near_exact(build, evaluation):
        return (
            f"from outputs computed {_method(build)} by only {evaluation.exact_error:.2g}; "
            f"the most exact reference differs from these by {evaluation.reference_exact_error:.2g}"
        )
    if _is_near_on_average(evaluation, _max_chance_error(build)):
        return (
            f"the latter change by {evaluation.reference_sensitivity:.2g} if inputs are perturbed by rounding; the "
            f"means over {evaluation.averaged_draws} nearby inputs differ by only {evaluation.averaged_error:.2g}, "
            "which may be chance"
        )
    return None


def _describe_evidence(build: Build, evaluation: Evaluation) -> str:
    """Describe the further evidence about a build that is too far from a reference."""
    facts, chance_error = [], _chance_error(evaluation)
    if evaluation.narrow_error is not None:
        facts.append(f"the reference differs from itself by {evaluation.narrow_error:.2g} if it rounds in the same way")
    if evaluation.rounded_error is not None:
        facts.append(f"{evaluation.rounded_error:.2g} from a reference that rounds in the same way")
    if evaluation.exact_error is not None:
        facts.append(f"{evaluation.exact_error:.2g} from outputs computed {_method(build)}")
    if evaluation.reference_sensitivity:
        facts.append(
            f"the reference's outputs change by {evaluation.reference_sensitivity:.2g} if its inputs are perturbed by "
            "rounding"
        )
    if chance_error is not None:
        facts.append(
            f"the means over {evaluation.averaged_draws} nearby inputs differ by {evaluation.averaged_error:.2g}, "
            f"and up to {chance_error:.2g} may be chance"
        )
        if chance_error > _max_chance_error(build):
            facts.append(f"errors below {chance_error:.2g} would go undetected")
    return f" ({'; '.join(facts)})" if facts else ""
