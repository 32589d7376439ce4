"""Evaluation of a build: whether it is right, and how fast it is beside PyTorch and ONNX Runtime."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.errors import BuildError
from anole.evaluate.interleave import Pace, time_interleaved
from anole.files import document, write_atomically
from anole.host.machine import host_facts, software_versions
from anole.measure.site import Site, site_of
from anole.record import utc_now
from anole.spec.entries import ModelSpec
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
) -> dict[str, Any]:
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
        BuildError: the folder is not a build that can run here, or the build is wrong.
        ExtractError: the model, which is the reference, cannot be loaded.
    """
    build = read_build(folder)
    target = get_target(build["target_description"])
    inputs = draw_inputs(build)
    if isinstance(target, Simulator):
        from anole.evaluate.accelerator import evaluate_simulated

        evaluation = _evaluation(build, 1, evaluate_simulated(folder, build, inputs))
        write_atomically(output, document(evaluation))
        return evaluation
    if (absence := target.absence()) is not None:
        _log.warning("%s: is compiled, but neither checked nor timed: %s", build["name"], absence)
        evaluation = {**_evaluation(build, target.threads, []), "absence": absence}
        write_atomically(output, document(evaluation))
        return evaluation
    threads = target.threads
    from anole.evaluate.engines import build_engine, reference_engines

    model = ModelSpec.from_json(build["model"], build["entry"])
    with _on_device(target) as site, reference_engines(model, inputs, threads, target.runs_on) as references:
        compiled = build_engine(folder, inputs, target.runs_on, threads)
        found = compiled.compute()
        errors = {engine.name: relative_error(found, engine.compute()) for engine in references}
        with site.timing():
            runs = {engine.name: engine.run for engine in (compiled, *references)}
            times = time_interleaved(runs, pace or Pace())
    evaluation = _evaluation(build, threads, [_latency(name, error, times) for name, error in errors.items()])
    write_atomically(output, document(evaluation))
    _report(build, evaluation)
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


def _evaluation(build: Mapping[str, Any], threads: int, latencies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "schema": 1,
        "build": build["name"],
        "created_at": utc_now(),
        "threads": threads,
        "host": host_facts(),
        "versions": software_versions(),
        "coverage_share": build["coverage"]["share"],
        "latencies": list(latencies),
    }


def read_build(folder: Path) -> dict[str, Any]:
    """Returns what a build says of itself.

    Raises:
        BuildError: the folder is not a build of this version.
    """
    try:
        build: dict[str, Any] = json.loads((folder / "build.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BuildError(f"{folder}: is not a build: {error}") from error
    missing = {"name", "model", "entry", "target_description", "inputs", "outputs", "coverage"} - set(build)
    if build.get("schema") != 1 or missing:
        problem = f"build.json lacks {', '.join(sorted(missing))}" if missing else f"found schema {build.get('schema')}"
        raise BuildError(f"{folder}: {problem}; compile it again")
    return build


def draw_inputs(build: Mapping[str, Any]) -> list[NDArray[Any]]:
    """Returns the random inputs that a build is compared and timed on."""
    return [_draw(info, seed) for seed, info in enumerate(build["inputs"])]


def _draw(info: Mapping[str, Any], seed: int) -> NDArray[Any]:
    """Returns random values of an input: standard normal, or zeros and ones where it takes whole numbers."""
    rng = np.random.default_rng(seed)
    if info["dtype"].startswith("float"):
        return np.asarray(rng.standard_normal(info["shape"]), info["dtype"])
    return np.asarray(rng.integers(0, 2, info["shape"]), info["dtype"])


def relative_error(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> float:
    """Returns the largest relative L2 distance of any output; 1e300 where there is none, such as for NaN."""
    if [array.shape for array in found] != [array.shape for array in expected]:
        return 1e300
    distances = []
    for mine, theirs in zip(found, expected, strict=True):
        wide = theirs.astype(np.float64)
        distances.append(float(np.linalg.norm(mine - wide) / max(float(np.linalg.norm(wide)), 1e-30)))
    return max((d if np.isfinite(d) else 1e300 for d in distances), default=0.0)


def _latency(name: str, error: float, times: Mapping[str, Sequence[NDArray[np.float64]]]) -> dict[str, Any]:
    own, reference = np.concatenate(times["build"]), np.concatenate(times[name])
    rounds = zip(times["build"], times[name], strict=True)
    return {
        "reference": name,
        "latency_s": float(np.median(own)),
        "latency_std_s": float(np.std(own)),
        "reference_latency_s": float(np.median(reference)),
        "reference_latency_std_s": float(np.std(reference)),
        # Of the rounds, because a shared machine may change its speed between two of them, but seldom within one.
        "speedup": float(np.median([np.median(theirs) / np.median(mine) for mine, theirs in rounds])),
        "relative_error": error,
        "rounds": len(times["build"]),
    }


def _report(build: Mapping[str, Any], evaluation: Mapping[str, Any]) -> None:
    _log.info("%s: %.1f %% of the work is tuned", build["name"], 100 * evaluation["coverage_share"])
    for latency in evaluation["latencies"]:
        _log.info(
            "%s: %.3f ms beside %.3f ms of %s (%.2fx), relative error %.1e",
            build["name"], 1e3 * latency["latency_s"], 1e3 * latency["reference_latency_s"], latency["reference"],
            latency["speedup"], latency["relative_error"],
        )  # fmt: skip
