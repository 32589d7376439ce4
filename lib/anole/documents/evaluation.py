"""The evaluation of a build: its accuracy, and its speed compared with its references."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from anole.codec import LATER
from anole.documents.document import read_document, write_document
from anole.keys import Time
from anole.text_format import duration


@dataclass(frozen=True)
class Latency:
    """A build compared with one reference; latencies are medians of single runs, in seconds.

    Attributes:
        reference: ``torch``, ``onnxruntime``, or ``untuned`` for the same network with default configs.
        speedup: the reference's latency over the build's latency, median over the rounds.
        relative_error: the L2 distance between the outputs, relative to the norm of the reference's outputs; the
            maximum over all outputs and inputs.
        output_variation: how much the reference's outputs depend on the input: the L2 distance from their mean over
            several inputs, relative to their norm; the minimum over outputs. Near 0, `relative_error` proves nothing.
        variation_error: the L2 distance between the outputs over all inputs, relative to the distance of the
            reference's outputs from their mean, or to a fifth of their norm if larger; the maximum over all outputs.
        snr_db: the signal-to-noise ratio in dB, for an integer network; None if exact or not requested.
        rounds: number of turns of each engine.
        speedup_low, speedup_high: the quartiles of the rounds' speedups.
        reference_precision: the types that the reference multiplies; None in older evaluations.
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
    """The percentiles of an engine's latency under CPU load, over all its timed runs.

    Attributes:
        engine: ``build``, or a reference as in `Latency`.
        neighbours: number of busy background processes.
        p99_s: the 99th percentile; with at most 100 runs, the slowest or second slowest run.
        start_s: start-up time: seconds from the start of the process to the first outputs, with imports; measured once.
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
    """The total time of a kernel's calls in one run of the network; `flop` and `size_bytes` are per call.

    Attributes:
        peak_flop_per_s: the peak for the kernel's low-precision type; None if the profile's peak applies.
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
        whole_s: seconds per run of the network when kernels are not timed.
        peak_flop_per_s, peak_bytes_per_s: the machine's roofline, see `anole.evaluate.timing.roofline`; None if all
            kernels are so short that thread start-up dominates.
    """

    whole_s: float
    kernels: tuple[KernelLatency, ...]
    peak_flop_per_s: float | None = None
    peak_bytes_per_s: float | None = None


@dataclass(frozen=True)
class SizesLatency:
    """A build for ranges compared with its references at some sizes, given by the names of its ranges."""

    sizes: Mapping[str, int] = field(hash=False)
    latencies: tuple[Latency, ...]


@dataclass(frozen=True)
class SampleError:
    """The errors of one output on the model's own samples.

    Attributes:
        reference: as in `Latency`.
        samples: the number of samples.
        relative_error: the largest L2 distance from the reference's output, relative to its norm.
        same_top_1: the number of samples with the same largest value; None unless the output has a row of scores.
    """

    output: str
    reference: str
    samples: int
    relative_error: float
    same_top_1: int | None

    def __str__(self) -> str:
        top_1 = "" if self.same_top_1 is None else f", same top 1 in {self.same_top_1}"
        return f"{self.output} on {self.samples} samples: {self.relative_error:.1e} from {self.reference}{top_1}"


@dataclass(frozen=True)
class Evaluation:
    """The result of evaluating a build.

    Attributes:
        absence: why the build could not be run; None if it could.
        precision: the types that the build multiplies, see `Build.precision`; None in older evaluations.
        redrawn_error: the `variation_error` of the same network with random weights that should make its outputs depend
            on its input; None if they already did, if it could not be computed, or without a torch factory.
        exact_error: the larger of `relative_error` and `variation_error` against the same network in double precision,
            or against a step-by-step computation of a quantized file; None if a reference was close, or if neither
            could be computed.
        reference_exact_error: the same error of the most accurate single-precision reference.
        reference_sensitivity: the same error of a reference against itself with inputs changed by a few units in the
            last place: the root mean square over many inputs near the compared ones; None if a reference was close, or
            if the double-precision network decided.
        nearby_error: the same error of the build against the reference on these nearby inputs.
        averaged_error: the same error of the build's mean output against the reference's, over the nearby inputs.
        narrow_error: the same error of a reference in the build's low precision against the float32 reference; None if
            a reference was close, or if the build does not round operands.
        rounded_error: the same error of the build against a reference with the same rounding of data or weights.
        load_latencies: one per number of busy processes and engine; None if not requested.
        sizes_latencies: the latencies at both ends of each range and at sizes in between; `latencies` are at the
            typical sizes. None for a build with fixed sizes.
        sample_errors: the errors of each output on the model's own samples; None without samples.
        kernel_profile: the times of the build's kernels; None if they were not timed one by one.
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
    sample_errors: Annotated[tuple[SampleError, ...] | None, LATER] = None

    def __str__(self) -> str:
        """Return the latency, the smallest error, and the farthest reference if it is not close."""
        if not self.latencies:
            return f"{self.build}: neither checked nor timed"
        farthest = max(self.latencies, key=lambda latency: latency.relative_error)
        error = judged_error(self.exact_error, (latency.relative_error for latency in self.latencies))
        remark = f" ({farthest.reference} is off by {farthest.relative_error:.1e})"
        return (
            f"{self.build}: {duration(self.latencies[0].latency_s)} in {self.precision}, error {error:.1e}"
            f"{remark if is_off(farthest.relative_error, error) else ''}"
        )


def judged_error(exact_error: float | None, relative_errors: Iterable[float]) -> float:
    """Return the error by which a build is judged: against double precision if known, or the nearest reference."""
    return min(error for error in (exact_error, *relative_errors) if error is not None)


def is_off(relative_error: float, error: float) -> bool:
    """Whether a reference is much farther from a build than the build's judged error."""
    return relative_error > max(3 * error, 1e-4)


def read_evaluation(path: Path) -> Evaluation:
    """Read an evaluation; raise DocumentError if it is missing or broken."""
    return read_document(path, Evaluation, "evaluate")


def write_evaluation(path: Path, evaluation: Evaluation) -> None:
    """Write an evaluation."""
    write_document(path, evaluation)
