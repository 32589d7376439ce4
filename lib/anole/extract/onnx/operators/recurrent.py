"""Converters for recurrent operators: ONNX's LSTM, GRU and RNN, and ONNX Runtime's DynamicQuantizeLSTM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from anole.extract.onnx.operators.call import Call, Converter, const, dtype_of
from anole.extract.onnx.operators.integer_products import as_integral_float
from anole.extract.onnx.operators.quantization import dynamic_quantize
from anole.extract.passes.exact_sums import exact_ranges
from anole.extract.recurrent import Operands, Scales, emit_recurrence
from anole.targets.shared.recurrence import GATES, Activation, Cell, Recurrence
from anole.targets.shared.recurrent_cell import ACTIVATIONS

_FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "lstm": ("sigmoid", "tanh", "tanh"),
    "gru": ("sigmoid", "tanh"),
    "rnn": ("tanh",),
}
"""The default activation functions of each cell."""

_PARAMETERS: Mapping[str, Mapping[str, float | None]] = {
    "affine": {"alpha": None, "beta": None},
    "elu": {"alpha": 1.0},
    "hardsigmoid": {"alpha": 0.2, "beta": 0.5},
    "leakyrelu": {"alpha": 0.01},
    "scaledtanh": {"alpha": None, "beta": None},
    "thresholdedrelu": {"alpha": None},
}
"""The parameters of activation functions, with defaults where ONNX and ONNX Runtime agree."""

_DIRECTIONS: Mapping[str, tuple[bool, ...]] = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""By the attribute ``direction``, whether each direction runs backward."""


def _convert_float(call: Call) -> list[relax.Expr]:
    cell: Any = call.operator.lower()
    return _convert_layer(call, cell, call.input(0), call.input(1), call.input(2))


def _dynamic_quantize_lstm(call: Call) -> list[relax.Expr]:
    """Compute with integers in float32, whose sums are exact below 2**24; ONNX Runtime uses int32.

    See ONNX Runtime's documentation of com.microsoft.DynamicQuantizeLSTM: for the entire batch, the input is quantized
    once, and the state in each step.
    """
    data, scale, zero = dynamic_quantize(call, call.input(0))
    centered = call.emit(relax.op.subtract(as_integral_float(call, data), as_integral_float(call, zero)))
    weight, recurrent = (_centered_values(call, index, zeros) for index, zeros in ((1, 9), (2, 11)))
    parts = exact_ranges(call.shape(1)[1], None if weight is None else np.concatenate(weight, axis=1))
    scales = Scales(scale, _reshape_by_direction(call, 8), _reshape_by_direction(call, 10), parts)
    w, r = (
        _center_weights(call, index, zeros) if values is None else const(values.transpose(0, 2, 1), dtype)
        for index, zeros, values, dtype in ((1, 9, weight, "float32"), (2, 11, recurrent, _storage_dtype(recurrent)))
    )
    return _convert_layer(call, "lstm", centered, w, r, scales)


def _centered_values(call: Call, index: int, zeros_index: int) -> NDArray[np.int32] | None:
    """Return constant integer weights minus zero points, shape (directions, inputs, columns), or None if computed."""
    weight, points = call.constant(index), call.constant(zeros_index)
    if weight is None or (points is None and call.has(zeros_index)):
        return None
    centered = weight.astype(np.int32)
    return centered if points is None else centered - points.astype(np.int32).reshape(len(centered), 1, -1)


def _storage_dtype(weight: NDArray[np.int32] | None) -> str:
    """Return the smallest dtype for recurrent weights, since each step loads all of them."""
    if weight is None:
        return "float32"
    info = np.iinfo(np.int8)
    return "int8" if info.min <= weight.min(initial=0) and weight.max(initial=0) <= info.max else "int16"


def _center_weights(call: Call, index: int, zeros_index: int) -> relax.Expr:
    """Subtract zero points from integer weights of shape (directions, inputs, columns), and put columns first."""
    weight = call.cast(call.input(index), "float32")
    if call.has(zeros_index):
        zero = relax.op.expand_dims(call.cast(_reshape_by_direction(call, zeros_index), "float32"), 1)
        weight = relax.op.subtract(weight, zero)
    return call.emit(relax.op.permute_dims(weight, [0, 2, 1]))


def _reshape_by_direction(call: Call, index: int) -> relax.Expr:
    """Reshape scales or zero points to (directions, 1 or columns)."""
    return call.emit(relax.op.reshape(call.input(index), [call.shape(1)[0], -1]))


def _convert_layer(
    call: Call, cell: Cell, data: relax.Expr, weight: relax.Expr, recurrent: relax.Expr, scales: Scales | None = None
) -> list[relax.Expr]:
    """Convert a recurrent operator.

    Args:
        call: the operator; its attributes, and its inputs from the third on, follow ONNX.
        cell: the kind of cell.
        data: the input X.
        weight: W, shape (directions, gates * hidden, inputs).
        recurrent: R, shape (directions, gates * hidden, hidden).
        scales: the scales of data and weights, if they are quantized.
    """
    if dtype_of(data) != "float32":
        raise call.refuse(f"found data of type {dtype_of(data)}; allowed: float32, float16")
    batch_first = call.flag("layout")
    rows, columns, _ = call.shape(0)
    recurrence = replace(
        _recurrence_from_attributes(call, cell, recurrent),
        steps=columns if batch_first else rows,
        batch=rows if batch_first else columns,
        batch_first=batch_first,
        axes="ntd" if batch_first else "tdn",
        quantized=scales is not None,
        weight_dtype=dtype_of(recurrent),
    )
    lengths = _lengths(call, recurrence)
    input_indices = {"bias": 3, "initial_h": 5, **({"initial_c": 6, "peepholes": 7} if cell == "lstm" else {})}
    optional = {name: call.input(index) for name, index in input_indices.items() if call.has(index)}
    if batch_first:
        optional |= {name: _swap_axes(call, value) for name, value in optional.items() if name.startswith("initial")}
    recurrence = replace(recurrence, lengths=lengths is not None, peepholes="peepholes" in optional)
    operands = Operands(data, weight, recurrent, lengths=lengths, scales=scales, **optional)
    y, *states = emit_recurrence(call.builder, recurrence, operands)
    if batch_first:
        states = [_swap_axes(call, state) for state in states]
    return [y, *states][: max(call.n_outputs, 1)]


def _swap_axes(call: Call, state: relax.Expr) -> relax.Expr:
    """Swap the batch and direction axes of a state."""
    return call.emit(relax.op.permute_dims(state, [1, 0, 2]))


def _recurrence_from_attributes(call: Call, cell: Cell, recurrent: relax.Expr) -> Recurrence:
    """Build a recurrence from an operator's attributes, without the shape of its data."""
    direction = str(call.attributes.get("direction", "forward")).lower()
    if direction not in _DIRECTIONS:
        raise call.refuse(f"direction: found {direction!r}; allowed: {', '.join(_DIRECTIONS)}")
    backward = _DIRECTIONS[direction]
    n_directions, rows, hidden = (int(extent) for extent in recurrent.ty.shape.values)
    if (n_directions, rows) != (len(backward), GATES[cell] * hidden):
        allowed = [len(backward), GATES[cell] * hidden, hidden]
        raise call.refuse(f"found R of shape {[n_directions, rows, hidden]}; expected {allowed}")
    clip = call.attributes.get("clip")
    return Recurrence(
        cell=cell,
        steps=0,
        batch=0,
        hidden=hidden,
        backward=backward,
        activations=_activations(call, cell, n_directions),
        clip=None if clip is None else float(clip),
        coupled=cell == "lstm" and call.flag("input_forget"),
        reset_after=cell == "gru" and call.flag("linear_before_reset"),
    )


def _activations(call: Call, cell: Cell, n_directions: int) -> tuple[tuple[Activation, ...], ...]:
    """Return the activation functions of each direction; parameters are consumed in order."""
    n_functions = len(_FUNCTIONS[cell])
    names = [str(name).lower() for name in call.attributes.get("activations", _FUNCTIONS[cell] * n_directions)]
    if unknown := [name for name in names if name not in ACTIVATIONS]:
        raise call.refuse(f"activations: found {', '.join(unknown)}; allowed: {', '.join(ACTIVATIONS)}")
    if len(names) < n_functions * n_directions:
        raise call.refuse(f"activations: found {len(names)}; expected {n_functions * n_directions}")
    parameters = {name: list(call.attributes.get(f"activation_{name}", ())) for name in ("alpha", "beta")}
    functions = [Activation(name, **_parameters(call, name, parameters)) for name in names]
    return tuple(tuple(functions[i * n_functions : (i + 1) * n_functions]) for i in range(n_directions))


def _parameters(call: Call, function: str, parameters: Mapping[str, list[Any]]) -> dict[str, float]:
    """Pop the parameters of the next activation function from the given lists."""
    values = {}
    for name, default in _PARAMETERS.get(function, {}).items():
        number = parameters[name].pop(0) if parameters[name] else default
        if number is None:
            raise call.refuse(f"activation_{name}: missing for {function}, which has no default")
        values[name] = float(number)
    return values


def _lengths(call: Call, recurrence: Recurrence) -> relax.Expr | None:
    """Return the sequence lengths, which the kernel clamps, or None if all sequences have full length."""
    if not call.has(4):
        return None
    lengths = call.constant(4)
    if lengths is not None and np.all(lengths == recurrence.steps):
        return None
    if lengths is not None and not np.all((lengths >= 0) & (lengths <= recurrence.steps)):
        raise call.refuse(f"sequence_lens: found {lengths.tolist()}; allowed: 0 to {recurrence.steps}")
    return call.cast(call.input(4), "int32")


CONVERTERS: dict[str, Converter] = {
    "DynamicQuantizeLSTM": _dynamic_quantize_lstm,
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _convert_float),
}
"""Converters by operator type."""
