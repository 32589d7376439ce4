"""Converters for DFT and STFT: products with constant cosine and sine matrices, which are tuned like dense layers."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from anole.extract.onnx.operators.call import Call, Converter, const, dtype_of, shape_of

_MAX_ELEMENTS = 2**26
"""Max number of elements of a cosine and sine matrix, which then has 256 MiB."""


def _dft(call: Call) -> relax.Expr:
    data = call.input(0)
    shape = shape_of(data)
    rank = len(shape)
    if call.has(2):
        axis = int(call.require_constant(2, "axis").item())
    else:
        axis = call.integer("axis", -2 if call.opset >= 20 else 1)
    axis = call.normal_axis(axis, rank)
    if axis == rank - 1 or shape[-1] not in (1, 2):
        raise call.refuse(f"found shape {list(shape)} and axis {axis}; the last axis holds real and imaginary parts")
    is_inverse, is_onesided = (bool(call.attributes.get(name, 0)) for name in ("inverse", "onesided"))
    length = shape[axis]
    if is_inverse and is_onesided:
        length = 2 * (length - 1)
    if call.has(1):
        length = int(call.require_constant(1, "dft_length").item())
    matrix = _matrix(shape[axis], length, shape[-1], is_inverse, is_onesided)
    order = [i for i in range(rank - 1) if i != axis]
    return _apply_matrix(call, data, matrix, order, axis)


def _matrix(
    n_samples: int, length: int, parts: int, is_inverse: bool, is_onesided: bool, window: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    """Return the transform matrix, shape (n_samples, parts, frequencies, parts out); parts are real and imaginary.

    Args:
        n_samples: the number of samples, cropped or zero-padded to the length.
        length: the length of the transform.
        parts: 1 for real signals, otherwise 2.
        is_inverse: whether to map frequencies to a signal.
        is_onesided: whether only half of the frequencies are given (inverse) or returned.
        window: factors of the samples.
    """
    frequencies = length // 2 + 1 if is_onesided and not is_inverse else length
    indices = np.arange(n_samples)
    phase = indices[:, None] * np.arange(frequencies)[None, :] % length * (2 * np.pi / length)
    weight = np.where(indices < length, 1.0, 0.0) * (1 if window is None else window)
    if is_inverse:
        phase, weight = -phase, weight / length
        if is_onesided:
            # The omitted frequencies are conjugates of the given ones.
            half = length // 2
            is_doubled = (indices > 0) & (indices < (length + 1) // 2)
            weight = np.where(indices > half, 0, weight * np.where(is_doubled, 2, 1))
    cosines, sines = weight[:, None] * np.cos(phase), weight[:, None] * np.sin(phase)
    real, imaginary = np.stack([cosines, -sines], -1), np.stack([sines, cosines], -1)
    matrix = np.stack([real, imaginary][:parts], 1)
    return matrix[..., :1] if is_inverse and is_onesided else matrix


def _apply_matrix(call: Call, data: relax.Expr, matrix: NDArray[np.float64], order: list[int], axis: int) -> relax.Expr:
    """Apply a transform matrix along an axis of signals whose last axis holds real and imaginary parts."""
    n_samples, parts, frequencies, parts_out = matrix.shape
    if matrix.size > _MAX_ELEMENTS:
        raise call.refuse(f"a transform of {n_samples} samples to {frequencies} frequencies is too long")
    shape = shape_of(data)
    rank = len(shape)
    signals = call.widen(data)
    batch_shape = [shape[i] for i in order]
    if [*order, axis] != list(range(rank - 1)):
        signals = call.emit(relax.op.permute_dims(signals, [*order, axis, rank - 1]))
    rows = relax.op.reshape(signals, [prod(batch_shape), n_samples * parts])
    weight = const(matrix.reshape(n_samples * parts, frequencies * parts_out), dtype_of(signals))
    result = relax.op.reshape(relax.op.matmul(rows, weight), [*batch_shape, frequencies, parts_out])
    axes = [*order, axis]
    if axes != list(range(rank - 1)):
        result = relax.op.permute_dims(result, [*(axes.index(i) for i in range(rank - 1)), rank - 1])
    return call.cast(call.emit(result), dtype_of(data))


def _stft(call: Call) -> relax.Expr:
    data = call.input(0)
    shape = shape_of(data)
    if len(shape) == 2:
        data, shape = call.emit(relax.op.expand_dims(data, 2)), (*shape, 1)
    step = int(call.require_constant(1, "frame_step").item())
    window = call.constant(2)
    if call.has(3):
        length = int(call.require_constant(3, "frame_length").item())
    elif call.has(2):
        length = call.shape(2)[0]
    else:
        raise call.refuse("one of window and frame_length must be given")
    if not (1 <= length <= shape[1] and step >= 1):
        raise call.refuse(f"found frames of {length} every {step} samples of {shape[1]}")
    frames = 1 + (shape[1] - length) // step
    indices = step * np.arange(frames)[:, None] + np.arange(length)
    signals = call.gather(data, indices.ravel(), 1)
    signals = call.emit(relax.op.reshape(signals, [shape[0], frames, length, shape[2]]))
    if call.has(2) and call.shape(2) != (length,):
        raise call.refuse(f"found a window of {call.shape(2)[0]} samples for frames of {length}")
    if call.has(2) and window is None:
        signals = call.emit(relax.op.multiply(signals, relax.op.reshape(call.input(2), [1, 1, length, 1])))
    matrix = _matrix(length, length, shape[2], False, call.flag("onesided", True), window)
    return _apply_matrix(call, signals, matrix, [0, 1], 2)


CONVERTERS: dict[str, Converter] = {"DFT": _dft, "STFT": _stft}
"""Converters by operator type."""
