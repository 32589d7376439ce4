"""Evaluates builds on their device against PyTorch and ONNX Runtime: same inputs, same threads, interleaved timing."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.documents.build import Build
from anole.documents.evaluation import Latency, LoadLatency
from anole.evaluate.alone import start_deployed, start_reference
from anole.evaluate.comparison import LEAST_VARIATION, Comparison, compare_outputs, draw_samples
from anole.evaluate.double_precision import compute_in_double
from anole.evaluate.engines import build_engine, reference_engines, torch_engine
from anole.evaluate.interleave import Pace, time_interleaved
from anole.evaluate.perturbed import AveragedComparison, compare_means
from anole.evaluate.under_load import log_load, time_under_load
from anole.measure.site import Site, site_of
from anole.targets.base import Device

_log = logging.getLogger(__name__)


class DeviceRunner:
    """Runs builds that TVM compiled; see `NetworkRunner`.

    Args:
        target: the builds' device.
    """

    is_exact = False

    def __init__(self, target: Device) -> None:
        self._target, self.threads = target, target.threads
        # TVM's thread pool gives the thread that starts it all cores, also those that were taken from this process.
        self._cores = os.sched_getaffinity(0)

    def compare(self, folder: Path, build: Build, inputs: Sequence[NDArray[Any]], pace: Pace) -> list[Latency]:
        """Returns a build's relative error and speedup against each reference."""
        runs_on, threads = self._target.runs_on, self.threads
        with self._prepared() as site, reference_engines(build.model_spec, inputs, threads, runs_on) as references:
            compiled = build_engine(folder, inputs, runs_on, threads)
            samples = draw_samples(build)
            found = compiled.compute_each(samples)
            compared = {engine.name: compare_outputs(found, engine.compute_each(samples)) for engine in references}
            with site.timing():
                times = time_interleaved({engine.name: engine.run for engine in (compiled, *references)}, pace)
        latencies = [_latency(name, comparison, times) for name, comparison in compared.items()]
        for latency in latencies:
            _log.info(
                "%s: %.3f ms, against %.3f ms of %s (%.2fx), relative error %.1e",
                *(build.name, 1e3 * latency.latency_s, 1e3 * latency.reference_latency_s, latency.reference),
                *(latency.speedup, latency.relative_error),
            )
        _warn_of_constant_outputs(build, next(iter(compared.values())))
        return latencies

    def time_under_load(
        self, folder: Path, build: Build, references: Sequence[str], counts: Sequence[int], pace: Pace
    ) -> list[LoadLatency]:
        """Returns the latencies of a build and of its references beside busy neighbours."""
        os.sched_setaffinity(0, self._cores)
        folder = folder.resolve()
        with self._prepared() as site, tempfile.TemporaryDirectory() as scratch:
            starts = {name: partial(start_reference, name, folder, Path(scratch)) for name in references}
            latencies = time_under_load(
                {"build": partial(start_deployed, folder), **starts}, counts, site, folder, pace
            )
        log_load(build.name, latencies)
        return latencies

    def check_redrawn(self, folder: Path, build: Build) -> Comparison:
        """Compares a build of other weights with the same weights in torch."""
        import torch

        from anole.extract.torch import make_network

        samples, runs_on = draw_samples(build), self._target.runs_on
        network = make_network(build.model_spec, "drawn")
        reference = torch_engine(network, tuple(map(torch.from_numpy, samples[0])))
        found = build_engine(folder, samples[0], runs_on, self.threads).compute_each(samples)
        return compare_outputs(found, reference.compute_each(samples))

    def compare_exactly(self, folder: Path, build: Build) -> tuple[Comparison, Comparison]:
        """Compares a build, and the most exact reference, with the network in double precision."""
        samples, threads, runs_on = draw_samples(build), self.threads, self._target.runs_on
        exact = compute_in_double(build.model_spec, samples)
        with reference_engines(build.model_spec, samples[0], threads, runs_on) as references:
            theirs = [compare_outputs(engine.compute_each(samples), exact) for engine in references]
        found = build_engine(folder, samples[0], runs_on, threads).compute_each(samples)
        return compare_outputs(found, exact), min(theirs, key=lambda comparison: comparison.error)

    def compare_means(self, folder: Path, build: Build, reference: str) -> AveragedComparison:
        """Compares a build with a reference on average over nearby inputs."""
        samples, threads, runs_on = draw_samples(build), self.threads, self._target.runs_on
        with reference_engines(build.model_spec, samples[0], threads, runs_on) as references:
            engine = next(each for each in references if each.name == reference)
            return compare_means(build_engine(folder, samples[0], runs_on, threads), engine, samples)

    def run(self, folder: Path, build: Build, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Returns the outputs of a build, in order."""
        os.environ.update(self._target.environment())
        return build_engine(folder, inputs, self._target.runs_on, self.threads).compute()

    @contextmanager
    def _prepared(self) -> Iterator[Site]:
        """Prepares this process for the device; enter it before TVM and torch start."""
        with site_of(self._target) as site:
            os.environ.update({**self._target.environment(), **site.environment()})
            yield site


def _warn_of_constant_outputs(build: Build, comparison: Comparison) -> None:
    """Names the outputs that are the same for every input, so that no comparison of them can fail."""
    constant = [
        f"{info.name} (by {share:.1g} of its norm)"
        for info, share in zip(build.outputs, comparison.variation, strict=False)
        if share < LEAST_VARIATION
    ]
    if constant:
        _log.warning(
            "%s: outputs do not depend on the input: correctness is not shown: they vary by less than %g: %s",
            *(build.name, LEAST_VARIATION, ", ".join(constant)),
        )


def _latency(name: str, comparison: Comparison, times: Mapping[str, Sequence[NDArray[np.float64]]]) -> Latency:
    own, reference = np.concatenate(times["build"]), np.concatenate(times[name])
    # A shared machine often changes its speed between rounds, but rarely within one.
    rounds = zip(times["build"], times[name], strict=True)
    speedups = [np.median(theirs) / np.median(mine) for mine, theirs in rounds]
    low, middle, high = map(float, np.quantile(speedups, (0.25, 0.5, 0.75)))
    return Latency(
        reference=name,
        latency_s=float(np.median(own)),
        latency_std_s=float(np.std(own)),
        reference_latency_s=float(np.median(reference)),
        reference_latency_std_s=float(np.std(reference)),
        speedup=middle,
        relative_error=comparison.relative_error,
        rounds=len(times["build"]),
        output_variation=comparison.output_variation,
        variation_error=comparison.variation_error,
        speedup_low=low,
        speedup_high=high,
    )
