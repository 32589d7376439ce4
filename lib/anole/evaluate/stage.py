"""The evaluate stage, which checks a build's outputs and times it against PyTorch and ONNX Runtime.

References get their inputs by position, so names and order are checked before any comparison.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.config.entries import ModelSpec
from anole.documents.build import Build, check_build_files, read_build
from anole.documents.evaluation import Evaluation, SampleError, SizesLatency, write_evaluation
from anole.errors import BuildError, DocumentError
from anole.evaluate.comparison import own_samples, relative_error
from anole.evaluate.correctness.check import CompileWithRandomWeights, add_evidence, reject_wrong
from anole.evaluate.network_runner import NetworkRunner, runner_of
from anole.evaluate.timing.roofline import warn_of_slow_kernels
from anole.evaluate.timing.turns import TurnSchedule
from anole.host.machine import host_facts, software_versions
from anole.ir.ranges import checked_sizes
from anole.record import utc_now
from anole.targets import get_target

_log = logging.getLogger(__name__)


def evaluate_network(
    folder: Path,
    output: Path,
    compile_with_random_weights: CompileWithRandomWeights,
    schedule: TurnSchedule | None = None,
    neighbours: Sequence[int] = (),
    declared: ModelSpec | None = None,
) -> None:
    """Evaluate a build, time its kernels, and log warnings for kernels far below the machine's roofline.

    See `evaluate_build` for arguments and errors.
    """
    evaluation = evaluate_build(folder, output, compile_with_random_weights, schedule, neighbours, declared)
    if (profile := warn_of_slow_kernels(folder)) is not None:
        write_evaluation(output, replace(evaluation, kernel_profile=profile))
    _log.info("%s", evaluation)


def _evaluate_at_sizes(
    runner: NetworkRunner, folder: Path, build: Build, evaluation: Evaluation, schedule: TurnSchedule
) -> Iterator[SizesLatency]:
    """Yield the latencies of a build at non-typical sizes of its ranges; raise BuildError if its outputs are wrong."""
    for sizes in checked_sizes(build.ranges or {}):
        fixed_build = build.at(sizes)
        sized = replace(evaluation, latencies=tuple(runner.compare(folder, fixed_build, schedule)))
        reject_wrong(folder, fixed_build, add_evidence(runner, folder, fixed_build, sized, None))
        yield SizesLatency(sizes, sized.latencies)


def evaluate_build(
    folder: Path,
    output: Path,
    compile_with_random_weights: CompileWithRandomWeights | None = None,
    schedule: TurnSchedule | None = None,
    neighbours: Sequence[int] = (),
    declared: ModelSpec | None = None,
) -> Evaluation:
    """Compare a build with its references on the same inputs and threads, with interleaved timing.

    Call it in a separate process: TVM, torch and ONNX Runtime set their number of threads when they start.

    Args:
        folder: folder of the build.
        output: the file for the evaluation. It is written even if outputs are wrong, unless the runner `is_exact`. If
            the device is absent, it contains the reason and no measurements.
        compile_with_random_weights: called for models from torch factories whose outputs do not depend on their input;
            None to skip that check.
        schedule: the number and duration of the turns.
        neighbours: numbers of busy processes; a correct build is timed again under each of these loads, see
            `anole.evaluate.timing.load`.
        declared: the model as models.yaml lists it; None if there is no models.yaml.

    Raises:
        DocumentError: the folder does not contain a build, or its files differ from its description, or the build's
            entry, inputs or outputs differ from the model's.
        BuildError: the build cannot run, its outputs are wrong, or `neighbours` are given for a simulator.
        ExtractError: the model, which is the reference, cannot be loaded.
    """
    build = read_build(folder)
    check_build_files(folder, build)
    check_interface(folder, build, declared)
    target = get_target(build.target_description)
    runner = runner_of(target)
    if neighbours and runner.is_exact:
        raise BuildError(f"{folder}: is for a simulator, which has no latency under load; leave out --neighbours")
    absence = target.absence()
    evaluation = Evaluation(
        build=build.name,
        created_at=utc_now(),
        threads=runner.threads,
        host=host_facts(),
        versions=software_versions(),
        coverage_share=build.coverage.share,
        latencies=() if absence is not None else tuple(runner.compare(folder, build, schedule or TurnSchedule())),
        absence=absence,
        precision=build.precision,
    )
    if absence is None and not runner.is_exact:
        evaluation = add_evidence(runner, folder, build, evaluation, compile_with_random_weights)
    write_evaluation(output, evaluation)
    if absence is not None:
        _log.warning("%s: is compiled, but neither checked nor timed: %s", build.name, absence)
        return evaluation
    _log.info("%s: %.1f %% of the work is tuned", build.name, 100 * build.coverage.share)
    if not runner.is_exact:
        reject_wrong(folder, build, evaluation)
        if build.ranges:
            sizes_latencies = tuple(_evaluate_at_sizes(runner, folder, build, evaluation, schedule or TurnSchedule()))
            evaluation = replace(evaluation, sizes_latencies=sizes_latencies)
            write_evaluation(output, evaluation)
    if not runner.is_exact and (samples := own_samples(build)):
        evaluation = replace(evaluation, sample_errors=tuple(_sample_errors(runner, folder, build, samples)))
        write_evaluation(output, evaluation)
    if neighbours:
        references = [latency.reference for latency in evaluation.latencies]
        under_load = runner.time_under_load(folder, build, references, neighbours)
        evaluation = replace(evaluation, load_latencies=tuple(under_load))
        write_evaluation(output, evaluation)
    return evaluation


def _sample_errors(
    runner: NetworkRunner, folder: Path, build: Build, samples: Sequence[Sequence[NDArray[Any]]]
) -> Iterator[SampleError]:
    """Yield and log the errors of each output on samples, against the first reference."""
    with runner.references(build, samples[0]) as (reference, *_):
        expected = reference.compute_each(samples)
    found = runner.engine(folder, samples[0]).compute_each(samples)
    for info, arrays, references in zip(
        build.outputs, zip(*found, strict=True), zip(*expected, strict=True), strict=True
    ):
        pairs = list(zip(arrays, references, strict=True))
        error = max(relative_error([array], [right]) for array, right in pairs)
        has_scores = len(info.shape) == 2 and info.shape[1] > 1 and info.dtype.startswith("float")
        same = sum(np.array_equal(array.argmax(1), right.argmax(1)) for array, right in pairs) if has_scores else None
        sample_error = SampleError(info.name, reference.name, len(pairs), error, same)
        _log.info("%s: %s", build.name, sample_error)
        yield sample_error


def check_interface(folder: Path, build: Build, declared: ModelSpec | None) -> None:
    """Raise DocumentError if a build's model entry differs from models.yaml, or its inputs from the model's.

    Outputs are compared with those of an ONNX file. Without `declared`, the current entry, the build's own is used.
    """
    recorded = build.model_spec
    model = recorded if declared is None else declared
    if model != recorded or list(model.inputs) != list(recorded.inputs):
        problem = f"was compiled from an entry of model {build.model} that differs from models.yaml"
        raise DocumentError(folder, problem, "compile")
    inputs, outputs = [info.name for info in build.inputs], [info.name for info in build.outputs]
    expected_inputs, expected_outputs = list(model.inputs), outputs
    if model.scheme == "onnx":
        expected_inputs, expected_outputs = _names_in_file(model)
        if model.outputs:
            # Inputs that these outputs do not depend on are left out.
            expected_inputs = [name for name in expected_inputs if name in inputs]
    for kind, names, expected in (("inputs", inputs, expected_inputs), ("outputs", outputs, expected_outputs)):
        if names != expected:
            problem = f"has the {kind} {', '.join(names)}; model {build.model} has {', '.join(expected)}"
            raise DocumentError(folder, problem, "compile")


def _names_in_file(model: ModelSpec) -> tuple[list[str], list[str]]:
    """Return the names of an ONNX file's inputs without fixed values, and of the outputs to compute."""
    import onnx

    graph = onnx.load(model.location, format="protobuf", load_external_data=False).graph
    fixed = {tensor.name for tensor in graph.initializer} | set(model.values)
    inputs = [value.name for value in graph.input if value.name not in fixed]
    return inputs, list(model.outputs) or [value.name for value in graph.output]
