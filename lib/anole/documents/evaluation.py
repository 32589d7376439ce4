"""The evaluation of a build: whether it is right, and how fast it is beside its references."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from anole.codec import LATER
from anole.documents.document import read_document, write_document
from anole.keys import Time
from anole.text_format import duration


@dataclass(frozen=True)
class Latency:
    """A build beside one reference; latencies are the medians of one run, in seconds.

    Attributes:
        reference: ``torch``, ``onnxruntime``, or ``untuned`` for the same network with default configs.
        speedup: the reference's latency over the build's, the median over the rounds.
        relative_error: the L2 distance of the outputs, relative to the reference's; the largest of all outputs and
            inputs.
        output_variation: how much the reference's outputs depend on the input: the L2 distance from their mean over
            several inputs, relative to their norm; the least of all outputs. Near 0, `relative_error` shows nothing.
        variation_error: the L2 distance of the outputs over all inputs, relative to the reference's from their mean,
            or to a fifth of their norm if that is more; the largest of all outputs.
        snr_db: signal to noise, in decibel, for a network of whole numbers; None when exact or not asked.
        rounds: how often both took turns.
        speedup_low, speedup_high: the quartiles of the rounds' speedups.
        reference_precision: what the reference multiplies; None in older evaluations.
    """

    reference: str
    latency_s: float
    reference_latency_s: float
    speedup: float
    relative_error: float
    latency_std_s: float | None = None
    reference_latency_std_s: float | None = None
    snr_db: float | None = None
    rounds: int | None = None
    output_variation: float | None = None
    variation_error: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    reference_precision: str | None = None


@dataclass(frozen=True)
class LoadLatency:
    """The percentiles of an engine's latency while other processes keep the processor busy, over all its timed runs.

    Attributes:
        engine: ``build``, or a reference as in `Latency`.
        neighbours: how many busy processes ran beside it.
        p99_s: the 99th percentile; of at most 100 runs, the slowest or the one before it.
        start_s: seconds from the start of its process to its first outputs, including imports; it started once.
    """

    engine: str
    neighbours: int
    p50_s: float
    p95_s: float
    p99_s: float
    runs: int
    rounds: int
    start_s: float | None = None


@dataclass(frozen=True)
class KernelLatency:
    """A kernel's seconds in all its calls of one run of the network; its operations and bytes are those of one call.

    Attributes:
        peak_flop_per_s: the peak of the narrow numbers that it multiplies; None if it is that of the profile.
    """

    kernel: str
    layers: tuple[str, ...]
    calls: int
    flop: int
    size_bytes: int
    latency_s: float
    peak_flop_per_s: float | None = None


@dataclass(frozen=True)
class KernelProfile:
    """The times of all kernels of a build.

    Attributes:
        whole_s: seconds of a run of the network in which no kernel is timed.
        peak_flop_per_s, peak_bytes_per_s: the machine's roofline, see `anole.evaluate.roofline`; None if all kernels
            are so short that starting the threads is what takes the time.
    """

    whole_s: float
    kernels: tuple[KernelLatency, ...]
    peak_flop_per_s: float | None = None
    peak_bytes_per_s: float | None = None


@dataclass(frozen=True)
class SizesLatency:
    """How a build for ranges does at some sizes, by the names of its ranges, beside its references."""

    sizes: Mapping[str, int] = field(hash=False)
    latencies: tuple[Latency, ...]


@dataclass(frozen=True)
class Evaluation:
    """What evaluating a build found.

    Attributes:
        absence: why nothing could be run; None when it was.
        precision: what the build multiplies, see `anole.documents.build.Build`; None in older evaluations.
        redrawn_error: the `variation_error` of the same network with weights drawn so that its outputs depend on its
            input; None where they did anyway, or where no such network could be made.
        exact_error: the larger one of `relative_error` and `variation_error` against the same network in double
            precision, or against a quantized file's own steps one by one; None where no reference was far away, or
            where it could not be computed.
        reference_exact_error: the same error of the most exact reference in single precision.
        reference_sensitivity: the same error of a reference beside itself, with its inputs changed by a few units in
            the last place, on many inputs near those of the comparison: the root of the mean square; None where no
            reference was far away, or where the network in double precision decided.
        nearby_error: that of the build beside the reference on the same inputs.
        averaged_error: the same error of the means of both over such inputs.
        narrow_error: the same error of a reference that multiplies numbers as narrow as the build's, beside the one
            that does not; None where no reference was far away, or where the build's are not narrow.
        rounded_error: that of the build beside a reference that rounds numbers or weights in the same way.
        load_latencies: one for each number of busy neighbours and each engine; None where none was asked.
        sizes_latencies: those at both ends of each range and between, where `latencies` are those at the usual sizes;
            None for a build of fixed sizes.
        kernel_profile: the times of its kernels; None where they cannot be timed one by one, or were not yet.
    """

    build: str
    created_at: Time
    threads: int
    host: Mapping[str, Any] = field(hash=False)
    versions: Mapping[str, str] = field(hash=False)
    coverage_share: float
    latencies: tuple[Latency, ...]
    absence: str | None = None
    precision: str | None = None
    redrawn_error: float | None = None
    exact_error: float | None = None
    reference_exact_error: float | None = None
    reference_sensitivity: float | None = None
    nearby_error: float | None = None
    averaged_error: float | None = None
    averaged_draws: int | None = None
    narrow_error: float | None = None
    rounded_error: float | None = None
    load_latencies: tuple[LoadLatency, ...] | None = None
    kernel_profile: KernelProfile | None = None
    sizes_latencies: Annotated[tuple[SizesLatency, ...] | None, LATER] = None

    def __str__(self) -> str:
        """Return the latency, the error of what decided, and the reference that is far from it, if one is."""
        if not self.latencies:
            return f"{self.build}: neither checked nor timed"
        farthest = max(self.latencies, key=lambda latency: latency.relative_error)
        error = min(
            each
            for each in (self.exact_error, *(latency.relative_error for latency in self.latencies))
            if each is not None
        )
        aside = f" ({farthest.reference} is {farthest.relative_error:.1e} away)"
        return (
            f"{self.build}: {duration(self.latencies[0].latency_s)} in {self.precision}, error {error:.1e}"
            f"{aside if farthest.relative_error > max(3 * error, 1e-4) else ''}"
        )


def read_evaluation(path: Path) -> Evaluation:
    """Read an evaluation; raise DocumentError if it is missing or broken."""
    return read_document(path, Evaluation, "evaluate")


def write_evaluation(path: Path, evaluation: Evaluation) -> None:
    """Write an evaluation."""
    write_document(path, evaluation)
