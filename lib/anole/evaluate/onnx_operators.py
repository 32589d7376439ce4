"""Operators in NumPy that the onnx package's reference implementation lacks, or computes otherwise than ONNX says."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx.reference.op_run import OpRun


class BatchNormalization(OpRun):  # type: ignore[misc]
    """Normalises by the given statistics; the package takes those of the data before opset 14."""

    def _run(
        self,
        x: NDArray[Any],
        scale: NDArray[Any],
        bias: NDArray[Any],
        mean: NDArray[Any],
        variance: NDArray[Any],
        epsilon: float | None = None,
        training_mode: int | None = None,
        **_: Any,
    ) -> tuple[NDArray[Any]]:
        if training_mode:
            raise NotImplementedError("training")
        shape = (1, -1, *[1] * (x.ndim - 2))
        factor = scale / np.sqrt(variance + (1e-5 if epsilon is None else epsilon))
        return ((x - mean.reshape(shape)) * factor.reshape(shape) + bias.reshape(shape),)


class STFT(OpRun):  # type: ignore[misc]
    """Transforms real signals in windows; the package does not take those without a last axis, as many files have."""

    def _run(
        self,
        signal: NDArray[Any],
        step: NDArray[Any],
        window: NDArray[Any] | None = None,
        length: NDArray[Any] | None = None,
        onesided: int | None = None,
        **_: Any,
    ) -> tuple[NDArray[Any]]:
        if signal.ndim == 3 and signal.shape[2] != 1:
            raise NotImplementedError("complex signals")
        real = signal.reshape(len(signal), -1)
        size = int(length) if length is not None else len(window) if window is not None else real.shape[1]
        frames = np.lib.stride_tricks.sliding_window_view(real, size, axis=1)[:, :: int(step)]
        transform = np.fft.fft if onesided == 0 else np.fft.rfft
        found = transform(frames if window is None else frames * window)
        return (np.stack([found.real, found.imag], -1).astype(signal.dtype),)


OPERATORS: tuple[type[OpRun], ...] = (BatchNormalization, STFT)
"""They precede those of the package."""
