"""Judges whether a build computes its network: beside its references, in double precision, and on average.

References come first. A reference that is itself farther from the truth is overruled by the network in double
precision, or by the steps of a quantized file one by one. A reference that multiplies rounding is compared on average,
see `anole.evaluate.perturbation`.
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
from anole.evaluate.comparison import MIN_VARIATION, compare_outputs, draw_samples
from anole.evaluate.engines import Arrays
from anole.evaluate.low_precision import narrow_engine
from anole.evaluate.network_runner import NetworkRunner
from anole.evaluate.perturbation import LARGEST_CHANCE, MAX_ERROR_RATIO, MeansCompared, chance, compare_means
from anole.evaluate.quantized_reference import defined_engine
from anole.targets import kind_of
from anole.targets.kind import Rounding

_log = logging.getLogger(__name__)

CompileWithRandomWeights = Callable[[Build, Path], object]
"""Compiles a build once more with other weights into a folder, see `anole.compile.recorded`."""

MAX_RELATIVE_ERROR = 1e-4
"""The largest allowed L2 distance from a reference: relative to the reference's L2 norm, and also to how much the
reference's outputs depend on the input. The same is allowed beside the network in double precision."""

_LOW_PRECISION_LIMIT = 1e-2
"""The same for builds that multiply bfloat16, whose last bit is 1/256 of a number, or store weights in few bits. Means
of builds that multiply bytes may differ by as much: in deep networks, single outputs differ by so much that nothing
smaller is found in minutes."""

_MAX_LOW_PRECISION_ERROR = 0.3
"""The error beyond which nothing allows it to such a build, or to one that multiplies bytes: with a layer left out, it
would hardly be larger."""

_REFERENCE_ERROR_FACTOR = 3.0
"""How much farther than the most exact reference a build may be from the network in double precision: the order of a
sum changes its rounding, and some networks make much of that."""

_MAX_STEPS_ERROR = 0.1
"""The largest error of a build that multiplies bytes, vs. its file's own steps, whatever its references do."""

_MAX_REFERENCE_ERROR = 3e-3
"""The error of a reference of float32 beyond which it allows nothing: noise in weights would not be found any more."""


def with_evidence(
    runner: NetworkRunner,
    folder: Path,
    build: Build,
    evaluation: Evaluation,
    compile_with_random_weights: CompileWithRandomWeights | None,
) -> Evaluation:
    """Return the evaluation with further evidence about a build that its references do not show to be right.

    Log a warning for each check that could not run. `compile_with_random_weights` is called for torch models whose
    outputs do not depend on their input, unless it is None.
    """
    if _is_constant(evaluation) and compile_with_random_weights is not None and build.model_spec.scheme == "torch":
        with _warned(build, "could not be compared with other weights: "):
            evaluation = replace(evaluation, redrawn_error=_redrawn_error(runner, build, compile_with_random_weights))
    far = _far_references(build, evaluation)
    if _agreeing(build, evaluation) is not None:
        return evaluation
    if far and (rounding := rounding_of(build)):
        with _warned(build):
            own, beside = _narrow_errors(runner, folder, build)
            # Weights are rounded once, so that nothing but the same outputs is right.
            return replace(evaluation, narrow_error=own if rounding.dtype else None, rounded_error=beside)
    if far:
        with _warned(build):
            own, reference = _exact_errors(runner, folder, build)
            evaluation = replace(evaluation, exact_error=own, reference_exact_error=reference)
        if not _is_near_exact(build, evaluation):
            with _warned(build):
                evaluation = replace(evaluation, **vars(_means(runner, folder, build, far[0].reference)))
    return evaluation


def refuse_wrong(folder: Path, build: Build, evaluation: Evaluation) -> None:
    """Raise a `BuildError` if outputs are too far from a reference's, and nothing else shows that they are right."""
    allowed = _max_error(build)
    for latency in _far_references(build, evaluation):
        errors = _errors(latency)
        if (reason := _reason_to_accept(build, evaluation)) is not None:
            _log.warning(
                "%s: the outputs differ from those of %s by %.2g, and %s",
                *(folder, latency.reference, max(errors.values()), reason),
            )
            continue
        kind = next(kind for kind, error in errors.items() if not error <= allowed)
        raise BuildError(
            f"{folder}: the outputs differ from those of {latency.reference}: {kind} {errors[kind]:.3g}; "
            f"at most {allowed:g} is allowed{_doubt(build, evaluation)}{remedy(build)}"
        )
    if not (evaluation.redrawn_error or 0.0) <= allowed:
        raise BuildError(
            f"{folder}: with other weights, drawn so that the outputs depend on the input, they differ from those of "
            f"torch: error {evaluation.redrawn_error:.2g} relative to that; at most {allowed:g} is allowed"
        )


def rounding_of(build: Build) -> Rounding | None:
    """Return how a build rounds numbers or weights that its references do not; None if not at all."""
    return kind_of(build.target_description).rounding(build.target_description)


def _max_error(build: Build) -> float:
    """Return the largest error of a build beside a reference that needs no other evidence."""
    return _LOW_PRECISION_LIMIT if rounding_of(build) else MAX_RELATIVE_ERROR


def _multiplies_bytes(build: Build) -> bool:
    """Whether the network quantizes what it computes; then each value is decided, as rounding has it."""
    return any(kernel.dtype == "uint8" for kernel in build.kernels or ())


def _largest_chance(build: Build) -> float:
    """Return the largest difference of means that may be called chance."""
    return _LOW_PRECISION_LIMIT if _multiplies_bytes(build) else LARGEST_CHANCE


def remedy(build: Build) -> str:
    """Return what a user can do if it is rounding that makes outputs differ; empty if nothing."""
    configs = [task.config for task in build.tasks if task.config is not None]
    return kind_of(build.target_description).remedy(configs)


@contextmanager
def _warned(build: Build, problem: str = "") -> Iterator[None]:
    """Let an error be a warning."""
    try:
        yield
    except AnoleError as error:
        _log.warning("%s: %s%s", build.name, problem, error)


def _is_constant(evaluation: Evaluation) -> bool:
    """Whether an output of the network does not depend on the input."""
    return any((latency.output_variation or 0.0) < MIN_VARIATION for latency in evaluation.latencies)


def _errors(latency: Latency) -> dict[str, float]:
    """Return the errors beside a reference that decide whether a build is right, by their name."""
    return {
        "relative error": latency.relative_error,
        "error relative to how much they depend on the input": latency.variation_error or 0.0,
    }


def _far_references(build: Build, evaluation: Evaluation) -> list[Latency]:
    """Return the references from which the outputs are too far."""
    return [each for each in evaluation.latencies if not max(_errors(each).values()) <= _max_error(build)]


def _agreeing(build: Build, evaluation: Evaluation) -> Latency | None:
    """Return the reference that a build agrees with best; None if it agrees with none."""
    best = min(evaluation.latencies, key=lambda latency: max(_errors(latency).values()), default=None)
    return best if best is not None and max(_errors(best).values()) <= _max_error(build) else None


def _redrawn_error(runner: NetworkRunner, build: Build, compile_with_random_weights: CompileWithRandomWeights) -> float:
    """Return the error of the same network with other weights, beside torch on the processor."""
    import torch

    from anole.evaluate.by_name import ByName
    from anole.evaluate.engines import torch_engine
    from anole.extract.torch import make_network

    samples = draw_samples(build)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "redrawn")
        compile_with_random_weights(build, folder)
        network = ByName(build.model_spec, make_network(build.model_spec, redrawn=True))
        reference = torch_engine(network, tuple(map(torch.from_numpy, samples[0])))
        found = runner.engine(folder, samples[0]).compute_each(samples)
    comparison = compare_outputs(found, reference.compute_each(samples))
    shown = comparison.output_variation >= MIN_VARIATION
    _log.info(
        "%s: with weights drawn so that the outputs depend on the input, they %s: error relative to that %.1e",
        *(build.name, "do" if shown else "still do not all", comparison.variation_error),
    )
    return comparison.variation_error


def _narrow_errors(runner: NetworkRunner, folder: Path, build: Build) -> tuple[float, float]:
    """Return the error of a reference that rounds as a build does beside the one that does not, and the build's."""
    _log.info("%s: differs from a reference; rounding the reference's numbers in the same way", build.name)
    samples = draw_samples(build)
    with (
        runner.references(build, samples[0]) as references,
        narrow_engine(build.model_spec, build.target_description, samples[0], runner.threads) as narrow,
    ):
        rounded = narrow.compute_each(samples)
        own = compare_outputs(rounded, references[0].compute_each(samples)).error
    return own, compare_outputs(runner.engine(folder, samples[0]).compute_each(samples), rounded).error


def _exact_errors(runner: NetworkRunner, folder: Path, build: Build) -> tuple[float, float]:
    """Return the errors of a build and of its most exact reference beside what the network is defined to be."""
    _log.info(
        "%s: differs from a reference; computing the network %s, which may take minutes", folder, _definition(build)
    )
    samples = draw_samples(build)
    exact = _as_defined(runner, build, samples)
    with runner.references(build, samples[0]) as references:
        theirs = min(compare_outputs(each.compute_each(samples), exact).error for each in references)
    return compare_outputs(runner.engine(folder, samples[0]).compute_each(samples), exact).error, theirs


def _definition(build: Build) -> str:
    """Return in words what decides where references differ."""
    return "by its file's own steps" if _multiplies_bytes(build) else "in double precision"


def _as_defined(runner: NetworkRunner, build: Build, samples: list[Arrays]) -> list[Arrays]:
    """Return the outputs of the network in double precision, or of a quantized one by its file's own steps."""
    from anole.evaluate.double_precision import compute_in_double

    if not _multiplies_bytes(build):
        return compute_in_double(build.model_spec, samples)
    with defined_engine(build.model_spec, samples[0], runner.threads) as engine:
        return engine.compute_each(samples)


def _means(runner: NetworkRunner, folder: Path, build: Build, reference: str) -> MeansCompared:
    """Compare a build with a reference on average over nearby inputs."""
    _log.info("%s: differs from %s; comparing both on many nearby inputs, which may take minutes", folder, reference)
    samples = draw_samples(build)
    with runner.references(build, samples[0]) as references:
        engine = next(each for each in references if each.name == reference)
        return compare_means(runner.engine(folder, samples[0]), engine, samples, _largest_chance(build))


def _is_near_exact(build: Build, evaluation: Evaluation) -> bool:
    """Whether a build is as near to what the network is defined to be as its references, or as precision lets it be."""
    theirs = evaluation.reference_exact_error or 0.0
    most, beyond = (
        (_MAX_STEPS_ERROR, _MAX_STEPS_ERROR) if _multiplies_bytes(build) else (_MAX_REFERENCE_ERROR, MAX_RELATIVE_ERROR)
    )
    allowed = max(MAX_RELATIVE_ERROR, _REFERENCE_ERROR_FACTOR * theirs) if theirs <= most else beyond
    return evaluation.exact_error is not None and evaluation.exact_error <= allowed


def _chance(evaluation: Evaluation) -> float | None:
    """Return the largest error of means that may be chance; None if the reference's sensitivity explains no error."""
    own, error, draws = evaluation.reference_sensitivity, evaluation.nearby_error, evaluation.averaged_draws
    if own is None or error is None or draws is None or error > MAX_ERROR_RATIO * own:
        return None
    return chance(error, draws)


def _is_near_on_average(evaluation: Evaluation, largest_chance: float) -> bool:
    """Whether a build's means are as near to a reference's as chance lets them be, and noise would have been found."""
    allowed, error = _chance(evaluation), evaluation.averaged_error
    return allowed is not None and error is not None and error <= allowed <= largest_chance


def _reason_to_accept(build: Build, evaluation: Evaluation) -> str | None:
    """Return in words why a build that is too far from a reference is right nevertheless; None if it is not."""
    if (near := _agreeing(build, evaluation)) is not None:
        return f"from those of {near.reference} by only {max(_errors(near).values()):.2g}: the references disagree"
    if (rounded := evaluation.rounded_error) is not None and rounded <= MAX_RELATIVE_ERROR:
        return f"from those of a reference that rounds in the same way by only {rounded:.2g}"
    if (narrow := evaluation.narrow_error) is not None:
        own = max(max(_errors(latency).values()) for latency in evaluation.latencies)
        if own <= min(_REFERENCE_ERROR_FACTOR * narrow, _MAX_LOW_PRECISION_ERROR):
            return f"the reference differs from itself by {narrow:.2g} if it rounds in the same way"
    if _is_near_exact(build, evaluation):
        return (
            f"from those {_definition(build)} by only {evaluation.exact_error:.2g}; "
            f"the most exact reference differs from these by {evaluation.reference_exact_error:.2g}"
        )
    if _is_near_on_average(evaluation, _largest_chance(build)):
        return (
            f"these by {evaluation.reference_sensitivity:.2g} if its inputs are rounded anew; the means over "
            f"{evaluation.averaged_draws} nearby inputs differ by only {evaluation.averaged_error:.2g}, "
            "which may be chance"
        )
    return None


def _doubt(build: Build, evaluation: Evaluation) -> str:
    """Return in words what else was found of a build that is too far from a reference."""
    found, allowed = [], _chance(evaluation)
    if evaluation.narrow_error is not None:
        found.append(f"the reference differs from itself by {evaluation.narrow_error:.2g} if it rounds in the same way")
    if evaluation.rounded_error is not None:
        found.append(f"{evaluation.rounded_error:.2g} from those of a reference that rounds in the same way")
    if evaluation.exact_error is not None:
        found.append(f"{evaluation.exact_error:.2g} from those {_definition(build)}")
    if evaluation.reference_sensitivity:
        found.append(
            f"those of the reference differ by {evaluation.reference_sensitivity:.2g} if its inputs are rounded anew"
        )
    if allowed is not None:
        found.append(
            f"the means over {evaluation.averaged_draws} nearby inputs differ by {evaluation.averaged_error:.2g}, "
            f"of which {allowed:.2g} may be chance"
        )
        if allowed > _largest_chance(build):
            found.append(f"correctness is not shown beyond {allowed:.2g}")
    return f" ({'; '.join(found)})" if found else ""
