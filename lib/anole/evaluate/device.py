"""The runner that compares builds on a device with PyTorch and ONNX Runtime: same inputs and threads, interleaved."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.documents.build import Build
from anole.documents.evaluation import Latency, LoadLatency
from anole.errors import BuildError
from anole.evaluate.comparison import MIN_VARIATION, Comparison, check_inputs, compare_outputs
from anole.evaluate.engine_factories import start_deployed, start_reference
from anole.evaluate.engines import Arrays, Engine, build_engine, reference_engines
from anole.evaluate.timing.load import log_load, time_under_load
from anole.evaluate.timing.turns import Times, TurnSchedule, ratios, time_interleaved
from anole.measure.device_access import DeviceAccess, device_access
from anole.targets.base import Device

_log = logging.getLogger(__name__)


class DeviceRunner:
    """The network runner for builds that TVM compiled for a device; see `NetworkRunner`."""

    is_exact = False

    def __init__(self, target: Device) -> None:
        self._target, self.threads = target, target.threads
        # TVM's thread pool resets the affinity of the thread that starts it; `time_under_load` restores this one.
        self._cores = os.sched_getaffinity(0)

    def compare(self, folder: Path, build: Build, schedule: TurnSchedule) -> list[Latency]:
        """Return a build's relative error and speedup compared with each reference."""
        samples = check_inputs(build)
        with self._prepare_process() as access, self.references(build, samples[0]) as references:
            compiled = self.engine(folder, samples[0])
            outputs = compiled.compute_each(samples)
            if build.sizes is None:
                _check_load_py(folder, samples, outputs)
            comparisons = {engine: compare_outputs(outputs, engine.compute_each(samples)) for engine in references}
            with access.timing():
                times = time_interleaved({engine.name: engine.run for engine in (compiled, *references)}, schedule)
        latencies = [_latency(engine, comparison, times) for engine, comparison in comparisons.items()]
        for latency in latencies:
            _log.info(
                "%s: %.3f ms in %s, against %.3f ms of %s in %s (%.2fx), relative error %.1e",
                *(build.name, 1e3 * latency.latency_s, build.precision, 1e3 * latency.reference_latency_s),
                *(latency.reference, latency.reference_precision, latency.speedup, latency.relative_error),
            )
        _warn_of_constant_outputs(build, next(iter(comparisons.values())))
        return latencies

    def run(self, folder: Path, build: Build, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Return the outputs of a build, in order."""
        os.environ.update(self._target.environment())
        return self.engine(folder, inputs).compute()

    def engine(self, folder: Path, inputs: Sequence[NDArray[Any]]) -> Engine:
        """Return the engine of a build."""
        return build_engine(folder, inputs, self._target.runs_on, self.threads)

    def references(self, build: Build, inputs: Sequence[NDArray[Any]]) -> AbstractContextManager[list[Engine]]:
        """Yield engines of torch and ONNX Runtime, see `reference_engines`."""
        return reference_engines(build.model_spec, inputs, self.threads, self._target.runs_on)

    def time_under_load(
        self, folder: Path, build: Build, references: Sequence[str], counts: Sequence[int]
    ) -> list[LoadLatency]:
        """Return the latencies of a build and of its references under background load."""
        os.sched_setaffinity(0, self._cores)
        folder = folder.resolve()
        with self._prepare_process() as access, tempfile.TemporaryDirectory() as scratch:
            starts = {name: partial(start_reference, name, folder, Path(scratch)) for name in references}
            latencies = time_under_load({"build": partial(start_deployed, folder), **starts}, counts, access, folder)
        log_load(build.name, latencies)
        return latencies

    @contextmanager
    def _prepare_process(self) -> Iterator[DeviceAccess]:
        """Prepare this process for the device; enter it before TVM and torch start."""
        with device_access(self._target) as access:
            os.environ.update({**self._target.environment(), **access.environment()})
            yield access


def _check_load_py(folder: Path, samples: Sequence[Sequence[NDArray[Any]]], outputs: Sequence[Arrays]) -> None:
    """Raise BuildError if a build's ``load.py`` and its library return different outputs."""
    pairs = zip(start_deployed(folder).compute_each(samples), outputs, strict=True)
    if not all(len(arrays) == len(expected) and all(map(_is_same, arrays, expected)) for arrays, expected in pairs):
        raise BuildError(f"{folder}: load.py and model.so return different outputs; compile the build again")


def _is_same(array_a: NDArray[Any], array_b: NDArray[Any]) -> bool:
    return bool(np.array_equal(array_a, array_b, equal_nan=array_a.dtype.kind == "f"))


def _warn_of_constant_outputs(build: Build, comparison: Comparison) -> None:
    """Log a warning for outputs that hardly depend on the input: comparing them cannot reveal errors."""
    constant = [
        f"{info.name} (by {variation:.1g} of its norm)"
        for info, variation in zip(build.outputs, comparison.variation, strict=False)
        if variation < MIN_VARIATION
    ]
    if constant:
        _log.warning(
            "%s: outputs that do not depend on the input cannot be checked; they vary by less than %g: %s",
            *(build.name, MIN_VARIATION, ", ".join(constant)),
        )


def _latency(engine: Engine, comparison: Comparison, times: Mapping[str, Sequence[Times]]) -> Latency:
    build_s, reference_s = np.concatenate(times["build"]), np.concatenate(times[engine.name])
    low, median, high = map(float, np.quantile(ratios(times[engine.name], times["build"]), (0.25, 0.5, 0.75)))
    return Latency(
        reference=engine.name,
        reference_precision=engine.precision,
        latency_s=float(np.median(build_s)),
        latency_std_s=float(np.std(build_s)),
        reference_latency_s=float(np.median(reference_s)),
        reference_latency_std_s=float(np.std(reference_s)),
        speedup=median,
        relative_error=comparison.relative_error,
        rounds=len(times["build"]),
        output_variation=comparison.output_variation,
        variation_error=comparison.variation_error,
        speedup_low=low,
        speedup_high=high,
    )
