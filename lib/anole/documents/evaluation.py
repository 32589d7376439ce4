"""The evaluation of a build: whether it is right, and how fast it is beside its references."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anole.documents.document import read_document, write_document
from anole.keys import Time


@dataclass(frozen=True)
class Latency:
    """A build beside one reference; latencies are the medians of one run, in seconds.

    Attributes:
        reference: ``torch``, ``onnxruntime``, or ``untuned`` for the same network with default configs.
        speedup: the reference's latency over the build's, the median over the rounds.
        relative_error: the L2 distance of the outputs, relative to the reference's.
        snr_db: signal to noise, in decibel, for a network of whole numbers; None when exact or not asked.
        rounds: how often both took turns.
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


@dataclass(frozen=True)
class Evaluation:
    """What evaluating a build found.

    Attributes:
        coverage_share: which share of the build's work is tuned.
        latencies: one for each reference; none where the device is absent.
        absence: why nothing could be run; None when it was.
    """

    build: str
    created_at: Time
    threads: int
    host: Mapping[str, Any] = field(hash=False)
    versions: Mapping[str, str] = field(hash=False)
    coverage_share: float
    latencies: tuple[Latency, ...]
    absence: str | None = None


def read_evaluation(path: Path) -> Evaluation:
    """Reads an evaluation.

    Raises:
        DocumentError: it is missing or broken.
    """
    return read_document(path, Evaluation, "evaluate")


def write_evaluation(path: Path, evaluation: Evaluation) -> None:
    """Writes an evaluation."""
    write_document(path, evaluation)
