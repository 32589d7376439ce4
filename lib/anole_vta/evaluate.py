"""Evaluate a build on the simulated accelerator: bit-exact against integer NumPy, then against the float network."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.documents.build import Build
from anole.documents.evaluation import Latency
from anole.errors import BuildError
from anole.evaluate.comparison import timing_inputs
from anole.evaluate.engines import reference_engines
from anole.evaluate.timing.turns import TurnSchedule
from anole.host.machine import available_cores
from anole_vta.network.artifact import BuiltNetwork
from anole_vta.network.network import IntegerReference, Quantized
from anole_vta.section import accelerator_of
from anole_vta.target import VtaTarget

_log = logging.getLogger(__name__)

_MAX_ERROR = 0.5
"""The maximum relative error attributed to 8-bit quantization. Deep networks without calibration samples reach 0.3, and
two swapped inputs cause about 1."""


class SimulatedRunner:
    """A runner of builds on the simulated accelerator that each build describes; see `NetworkRunner`."""

    threads = 1
    is_exact = True

    def __init__(self, target: VtaTarget) -> None:
        pass

    def compare(self, folder: Path, build: Build, schedule: TurnSchedule) -> list[Latency]:
        """Compare the latency with the untuned network, and the outputs with the network in floating point.

        The latency is simulated, so the schedule is ignored.
        """
        accelerator, inputs = accelerator_of(folder, build), timing_inputs(build)
        outputs = _exact_outputs(folder, inputs)
        with reference_engines(build.model_spec, inputs, available_cores()) as (reference, *_):
            references = reference.compute()
        if [output.shape for output in references] != [output.shape for output in outputs]:
            raise BuildError(f"{folder}: its outputs do not have the shapes of the model's outputs; compile it again")
        error = _relative_error(outputs, references)
        if error > _MAX_ERROR:
            raise BuildError(
                f"{folder}: the outputs differ from {reference.name}'s: relative error {error:.3g}; at most "
                f"{_MAX_ERROR:g} is allowed"
            )
        snr_db = -20 * math.log10(error) if error else None
        latency_s, untuned_s = accelerator.latency_s, accelerator.untuned_latency_s
        speedup = untuned_s / latency_s if latency_s else 1.0
        _log.info(
            "%s: bit-equal to the integer reference in NumPy; signal-to-noise ratio against %s: %.1f dB",
            *(build.name, reference.name, math.inf if snr_db is None else snr_db),
        )
        _log.info(
            "%s: %.3f ms simulated, %.3f ms untuned (%.2fx)", *(build.name, 1e3 * latency_s, 1e3 * untuned_s, speedup)
        )
        return [
            Latency(
                reference="untuned",
                reference_precision=build.precision,
                latency_s=latency_s,
                latency_std_s=0.0,
                reference_latency_s=untuned_s,
                reference_latency_std_s=0.0,
                speedup=speedup,
                relative_error=error,
                snr_db=snr_db,
                rounds=1,
                speedup_low=speedup,
                speedup_high=speedup,
            )
        ]

    def run(self, folder: Path, build: Build, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Run a build and return its outputs, in order."""
        accelerator = accelerator_of(folder, build)
        network = BuiltNetwork.load(folder)
        outputs = network.outputs(network.run(inputs))
        cycles, latency_s = accelerator.cycles, accelerator.latency_s
        _log.info("%s: %d cycles on the accelerator, %.3f ms", build.name, cycles, 1e3 * latency_s)
        return outputs


def _exact_outputs(folder: Path, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
    """Run a build on the simulated accelerator; raise BuildError if a value differs from the integer reference."""
    network = BuiltNetwork.load(folder)
    values, expected = network.run(inputs), network.run(inputs, IntegerReference())
    for name, value in expected.items():
        if isinstance(value, Quantized) and not np.array_equal(value.numbers, values[name].numbers):  # type: ignore[union-attr]
            raise BuildError(f"{folder}: the accelerator differs from the integer reference in NumPy: {name}")
    return network.outputs(values)


def _relative_error(outputs: Sequence[NDArray[Any]], references: Sequence[NDArray[Any]]) -> float:
    """Return the relative L2 distance over all outputs together; 1e300 if it is not finite."""
    expected = np.concatenate([array.astype(np.float64).ravel() for array in references])
    noise = np.concatenate([array.ravel() for array in outputs]) - expected
    error = float(np.linalg.norm(noise) / max(float(np.linalg.norm(expected)), 1e-30))
    return error if math.isfinite(error) else 1e300
