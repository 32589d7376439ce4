"""The accelerator section of build.json: geometry, steps, cycles and the geometries that were considered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anole.documents.build import FILE, Build
from anole.documents.document import decode_document
from anole.errors import BuildError


@dataclass(frozen=True)
class AcceleratorStep:
    """A step that the accelerator runs; `value` is the name of its result in the network."""

    name: str
    value: str
    instructions: int
    cycles: int


@dataclass(frozen=True)
class AcceleratorCandidate:
    """A geometry that was considered for the network.

    Attributes:
        block: the GEMM block: batch, input channels and output channels.
        area, memory: relative to VTA.
        latency_s: the total of all layers.
    """

    block: tuple[int, ...]
    area: float
    memory: float
    latency_s: float


@dataclass(frozen=True)
class Accelerator:
    """The simulated accelerator that a network runs on.

    Attributes:
        geometry: the fields of `anole_vta.geometry.Geometry`.
        area, memory: relative to VTA.
        cycles, latency_s: the totals of all steps for one input.
        untuned_latency_s: the latency of the same network with default configs.
        snr_db: signal-to-noise ratio of each result; None where it is exact.
        candidates: the geometries that were considered; None where the hardware is fixed.
        per_layer_latency_s: latency if each layer had its own best geometry; None where the hardware is fixed.
    """

    geometry: Mapping[str, Any] = field(hash=False)
    area: float
    memory: float
    frequency_mhz: float
    samples: int
    steps: tuple[AcceleratorStep, ...]
    cycles: int
    latency_s: float
    untuned_latency_s: float
    snr_db: Mapping[str, float | None] = field(hash=False)
    candidates: tuple[AcceleratorCandidate, ...] | None = None
    per_layer_latency_s: float | None = None


def accelerator_of(folder: Path, build: Build) -> Accelerator:
    """Return the accelerator of a build; raise BuildError without one, DocumentError if it is broken."""
    if build.accelerator is None:
        raise BuildError(f"{folder}: {FILE} does not describe the accelerator; compile the build again")
    return decode_document(dict(build.accelerator), Accelerator, folder / FILE, "compile")
