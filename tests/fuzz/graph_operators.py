"""Operators for random ONNX graphs: each entry chooses operands and attributes that ONNX allows.

ONNX Runtime may still reject a choice, for example if it has no kernel for a dtype; the generator drops such choices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Value:
    """A tensor of the graph with ONNX Runtime's result."""

    name: str
    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim


@dataclass(frozen=True)
class Choice:
    """A node without output names."""

    operator: str
    operands: Sequence[Value | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    n_outputs: int = 1


class Source(Protocol):
    """The tensors and constants that operators choose from."""

    rng: np.random.Generator
    opset: int

    def value(self, *dtypes: str, rank: int | tuple[int, ...] | None = None) -> Value | None:
        """Choose a tensor with one of the dtypes and ranks; return None if there is none."""

    def like(self, other: Value) -> Value:
        """Choose a tensor or constant of the same dtype that broadcasts with another one."""

    def constant(self, array: Any, dtype: str | None = None) -> Value:
        """Create a constant."""


Operator = Callable[[Source], Choice | None]
"""A function that chooses a node, or None if the graph has no suitable operand."""

_OnValue = Callable[[Source, Value], Choice | None]
"""A function that chooses a node with a given operand."""

INTEGERS = ("int32", "int64")
NUMBERS = ("float32", *INTEGERS)
ALL = (*NUMBERS, "bool")


def operators() -> list[tuple[str, Operator]]:
    """Return all operators with their families; families are equally likely."""
    return [(family, make) for family, makes in _FAMILIES.items() for make in makes]


def _on(*dtypes: str, rank: int | tuple[int, ...] | None = None) -> Callable[[_OnValue], Operator]:
    """Pass a tensor with one of the dtypes and ranks to a function; without one, the operator is not possible."""

    def wrap(make: _OnValue) -> Operator:
        def choose(source: Source) -> Choice | None:
            value = source.value(*dtypes, rank=rank)
            return None if value is None else make(source, value)

        return choose

    return wrap


def _unary(operator: str, *dtypes: str, **attributes: Any) -> Operator:
    return _on(*(dtypes or ("float32",)))(lambda _, value: Choice(operator, [value], attributes))


def _within(operator: str, low: float, high: float) -> Operator:
    """Make an operator with a bounded domain, which requires a tensor inside of it."""

    def make(source: Source) -> Choice | None:
        found = [each for each in (source.value("float32") for _ in range(4)) if each is not None]
        inside = [each for each in found if np.all((each.array >= low) & (each.array <= high))]
        return Choice(operator, inside[:1]) if inside else None

    return make


def _binary(operator: str, *dtypes: str, **attributes: Any) -> Operator:
    @_on(*dtypes)
    def make(source: Source, value: Value) -> Choice | None:
        both = [value, source.like(value)]
        return Choice(operator, both if source.rng.random() < 0.5 else both[::-1], attributes)

    return make


def _divided(operator: str, **attributes: Any) -> Operator:
    """Make an integer division by nonzero constants."""

    @_on(*INTEGERS)
    def make(source: Source, value: Value) -> Choice | None:
        divisor = source.rng.choice([-7, -3, -2, -1, 1, 2, 3, 5, 8, 100], value.shape[-1:])
        return Choice(operator, [value, source.constant(divisor, str(value.array.dtype))], attributes)

    return make


def _several(operator: str, *dtypes: str) -> Operator:
    @_on(*dtypes)
    def make(source: Source, value: Value) -> Choice | None:
        return Choice(operator, [value, *(source.like(value) for _ in range(source.rng.integers(0, 3)))])

    return make


def _cast(source: Source) -> Choice | None:
    value = source.value(*ALL)
    to = str(source.rng.choice(ALL))
    if value is None or (value.array.dtype == np.float32 and not np.all(np.abs(value.array) < 2**30)):
        return None
    return Choice("Cast", [value], {"to": {"float32": 1, "int32": 6, "int64": 7, "bool": 9}[to]})


def _where(source: Source) -> Choice | None:
    condition, value = source.value("bool"), source.value(*ALL)
    if condition is None or value is None:
        return None
    own = condition.shape[-1:] == value.shape[-1:] or 1 in (*condition.shape[-1:], *value.shape[-1:])
    return Choice("Where", [condition, value, source.like(value)]) if own else None


@_on(*NUMBERS)
def _clip(source: Source, value: Value) -> Choice | None:
    low, high = np.sort(source.rng.integers(-4, 5, 2))
    bounds = [source.constant(each, str(value.array.dtype)) for each in (low, high)]
    kept = [None if source.rng.random() < 0.25 else each for each in bounds]
    return Choice("Clip", [value, *kept])


@_on("float32", rank=(2, 3, 4))
def _prelu(source: Source, value: Value) -> Choice | None:
    slope = source.rng.standard_normal((value.shape[1], *(1,) * (value.rank - 2)))
    return Choice("PRelu", [value, source.constant(slope, "float32")])


def _axis(source: Source, value: Value) -> int:
    return int(source.rng.integers(-value.rank, value.rank))


def _reduce(operator: str, *dtypes: str) -> Operator:
    @_on(*(dtypes or ("float32",)), rank=(1, 2, 3, 4))
    def make(source: Source, value: Value) -> Choice | None:
        keep = int(source.rng.integers(0, 2))
        if source.rng.random() < 0.15:
            return Choice(operator, [value], {"keepdims": keep})
        count = source.rng.integers(1, value.rank + 1)
        axes = source.rng.permutation(value.rank)[:count] - value.rank * source.rng.integers(0, 2)
        return Choice(operator, [value, source.constant(axes, "int64")], {"keepdims": keep})

    return make


def _arg(operator: str) -> Operator:
    @_on("float32", "int32", rank=(1, 2, 3, 4))
    def make(source: Source, value: Value) -> Choice | None:
        last, keep = (int(each) for each in source.rng.integers(0, 2, 2))
        return Choice(operator, [value], {"axis": _axis(source, value), "keepdims": keep, "select_last_index": last})

    return make


@_on(*NUMBERS, rank=(1, 2, 3, 4))
def _cumsum(source: Source, value: Value) -> Choice | None:
    exclusive, reverse = (int(each) for each in source.rng.integers(0, 2, 2))
    axis = source.constant(_axis(source, value), "int64")
    return Choice("CumSum", [value, axis], {"exclusive": exclusive, "reverse": reverse})


@_on("float32", rank=(1, 2, 3, 4))
def _topk(source: Source, value: Value) -> Choice | None:
    axis = _axis(source, value)
    # Equal values may come in any order.
    if len(np.unique(value.array)) < value.array.size:
        return None
    k = source.constant([source.rng.integers(1, value.shape[axis] + 1)], "int64")
    return Choice("TopK", [value, k], {"axis": axis, "largest": int(source.rng.integers(0, 2)), "sorted": 1}, 2)


def _along(operator: str, **attributes: Any) -> Operator:
    """Make an operator on floats along an axis."""
    on_floats = _on("float32", rank=(1, 2, 3, 4))
    return on_floats(lambda source, value: Choice(operator, [value], {"axis": _axis(source, value), **attributes}))


@_on("float32", rank=(2, 3, 4))
def _layer_norm(source: Source, value: Value) -> Choice | None:
    axis = _axis(source, value)
    scale, bias = (source.constant(source.rng.standard_normal(value.shape[axis:]), "float32") for _ in range(2))
    operands = [value, scale, *([bias] if source.rng.random() < 0.7 else [])]
    return Choice("LayerNormalization", operands, {"axis": axis, "epsilon": 1e-3})


def _channels(operator: str, n_weights: int, **attributes: Any) -> Operator:
    """Make a normalization with `n_weights` weights for each channel."""

    @_on("float32", rank=(3, 4))
    def make(source: Source, value: Value) -> Choice | None:
        weights = source.rng.uniform(0.2, 2, (n_weights, value.shape[1]))
        return Choice(operator, [value, *(source.constant(each, "float32") for each in weights)], attributes)

    return make


@_on("float32", rank=(3, 4))
def _group_norm(source: Source, value: Value) -> Choice | None:
    if source.opset < 21:
        return None
    groups = int(source.rng.choice([each for each in (1, 2, 3, 4) if value.shape[1] % each == 0]))
    weights = source.rng.uniform(0.2, 2, (2, value.shape[1]))
    operands = [value, *(source.constant(each, "float32") for each in weights)]
    return Choice("GroupNormalization", operands, {"num_groups": groups})


def _windows(source: Source, value: Value) -> dict[str, Any] | None:
    """Choose a window, strides and padding that fit, or return None."""
    extents = np.array(value.shape[2:])
    kernel = source.rng.integers(1, 4, len(extents))
    pads = source.rng.integers(0, kernel, (2, len(extents)))
    if np.any(extents + pads.sum(axis=0) < kernel):
        return None
    found = {"kernel_shape": kernel.tolist(), "strides": source.rng.integers(1, 3, len(extents)).tolist()}
    if source.rng.random() < 0.2 and np.all(extents >= kernel):
        return {**found, "auto_pad": str(source.rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))}
    return {**found, "pads": pads.ravel().tolist()}


def _has_idle_window(value: Value, window: dict[str, Any]) -> bool:
    """Whether ceil_mode may add a window past the data; ONNX counts it before opset 22, ONNX Runtime never does."""
    extents, kernel, strides = (np.array(each) for each in (value.shape[2:], window["kernel_shape"], window["strides"]))
    begin, end = np.reshape(window.get("pads", np.zeros(2 * len(extents), int)), (2, -1))
    last = -(-(extents + begin + end - kernel) // strides) * strides
    return bool(np.any(last >= extents + begin))


def _pool(operator: str, **attributes: Any) -> Operator:
    @_on("float32", rank=(3, 4))
    def make(source: Source, value: Value) -> Choice | None:
        window = _windows(source, value)
        if window is None or ("ceil_mode" in attributes and _has_idle_window(value, window)):
            return None
        return Choice(operator, [value], {**window, **attributes})

    return make


def _conv(operator: str) -> Operator:
    @_on("float32", rank=(3, 4))
    def make(source: Source, value: Value) -> Choice | None:
        window = _windows(source, value)
        if window is None:
            return None
        channels = value.shape[1]
        groups = int(source.rng.choice([each for each in (1, 2, 3, channels) if channels % each == 0]))
        out = int(source.rng.integers(1, 5))
        shape = (out * groups, channels // groups) if operator == "Conv" else (channels, out)
        weight = source.rng.standard_normal((*shape, *window["kernel_shape"])) / 3
        operands = [value, source.constant(weight, "float32")]
        if source.rng.random() < 0.6:
            operands.append(source.constant(source.rng.standard_normal(out * groups), "float32"))
        return Choice(operator, operands, {**window, "group": groups})

    return make


@_on("float32", rank=(1, 2, 3, 4))
def _matmul(source: Source, value: Value) -> Choice | None:
    inner = value.shape[-1]
    fitting = [
        each
        for each in (source.value("float32", rank=(2, 3, 4)) for _ in range(6))
        if each is not None and each.shape[-2] == inner and (each.rank == 2 or each.shape[:-2] == value.shape[:-2])
    ]
    if fitting and source.rng.random() < 0.7:
        return Choice("MatMul", [value, fitting[0]])
    weight = source.constant(source.rng.standard_normal((inner, source.rng.integers(1, 9))) / inner, "float32")
    return Choice("MatMul", [value, weight])


@_on("float32", rank=2)
def _gemm(source: Source, value: Value) -> Choice | None:
    first, second = (int(each) for each in source.rng.integers(0, 2, 2))
    inner, n = value.shape[0] if first else value.shape[1], int(source.rng.integers(1, 9))
    weight = source.rng.standard_normal((n, inner) if second else (inner, n)) / inner
    operands = [value, source.constant(weight, "float32")]
    if source.rng.random() < 0.7:
        operands.append(source.constant(source.rng.standard_normal(n), "float32"))
    alpha, beta = source.rng.choice([0.5, 1.0, 2.0, -1.0], 2).tolist()
    return Choice("Gemm", operands, {"transA": first, "transB": second, "alpha": alpha, "beta": beta})


@_on(*ALL, rank=(1, 2, 3, 4))
def _reshape(source: Source, value: Value) -> Choice | None:
    size, shape = value.array.size, list[int]()
    while len(shape) < 3 and size > 1:
        factors = [each for each in range(1, min(size, 16) + 1) if size % each == 0]
        shape.append(int(source.rng.choice(factors)))
        size //= shape[-1]
    shape.append(-1 if source.rng.random() < 0.5 else size)
    return Choice("Reshape", [value, source.constant(shape, "int64")])


@_on(*ALL, rank=(2, 3, 4))
def _transpose(source: Source, value: Value) -> Choice | None:
    return Choice("Transpose", [value], {"perm": source.rng.permutation(value.rank).tolist()})


@_on(*ALL, rank=(2, 3, 4))
def _flatten(source: Source, value: Value) -> Choice | None:
    return Choice("Flatten", [value], {"axis": int(source.rng.integers(0, value.rank + 1))})


@_on(*ALL, rank=(1, 2, 3, 4))
def _squeeze(source: Source, value: Value) -> Choice | None:
    ones = [axis for axis, extent in enumerate(value.shape) if extent == 1]
    if not ones:
        return None
    return Choice("Squeeze", [value, source.constant(source.rng.choice(ones, 1), "int64")])


@_on(*ALL, rank=(0, 1, 2, 3))
def _unsqueeze(source: Source, value: Value) -> Choice | None:
    axis = source.rng.integers(-value.rank - 1, value.rank + 1)
    return Choice("Unsqueeze", [value, source.constant([axis], "int64")])


@_on(*ALL, rank=(0, 1, 2, 3))
def _expand(source: Source, value: Value) -> Choice | None:
    shape = [int(source.rng.integers(1, 5)) if extent == 1 else extent for extent in value.shape]
    return Choice("Expand", [value, source.constant([source.rng.integers(1, 4), *shape], "int64")])


@_on(*ALL, rank=(1, 2, 3, 4))
def _tile(source: Source, value: Value) -> Choice | None:
    return Choice("Tile", [value, source.constant(source.rng.integers(1, 3, value.rank), "int64")])


@_on(*ALL, rank=(1, 2, 3, 4))
def _concat(source: Source, value: Value) -> Choice | None:
    axis = _axis(source, value)
    others = [source.value(str(value.array.dtype), rank=value.rank) for _ in range(4)]
    fitting = [
        each
        for each in others
        if each is not None and np.delete(each.shape, axis).tolist() == np.delete(value.shape, axis).tolist()
    ]
    return Choice("Concat", [value, *(fitting or [value])], {"axis": axis})


@_on(*ALL, rank=(1, 2, 3, 4))
def _split(source: Source, value: Value) -> Choice | None:
    axis = _axis(source, value)
    if value.shape[axis] < 2:
        return None
    first = int(source.rng.integers(1, value.shape[axis]))
    sizes = source.constant([first, value.shape[axis] - first], "int64")
    return Choice("Split", [value, sizes], {"axis": axis}, 2)


@_on(*ALL, rank=(1, 2, 3, 4))
def _slice(source: Source, value: Value) -> Choice | None:
    axes = source.rng.permutation(value.rank)[: source.rng.integers(1, value.rank + 1)]
    starts, ends, steps = [], [], []
    for axis in axes:
        extent, step = value.shape[axis], int(source.rng.choice([-2, -1, 1, 1, 2]))
        first, last = np.sort(source.rng.integers(0, extent, 2))
        starts.append(last if step < 0 else first - (extent if source.rng.random() < 0.3 else 0))
        ends.append((first - 1 if first else -(2**31)) if step < 0 else (last + 1 if last + 1 < extent else 2**31 - 1))
        steps.append(step)
    return Choice("Slice", [value, *(source.constant(each, "int64") for each in (starts, ends, axes, steps))])


@_on(*NUMBERS, rank=(1, 2, 3, 4))
def _pad(source: Source, value: Value) -> Choice | None:
    mode = str(source.rng.choice(["constant", "reflect", "edge", *(["wrap"] if source.opset >= 19 else [])]))
    limit = 3 if mode in ("constant", "edge") else min(3, *value.shape) if mode == "reflect" else 2
    pads = source.constant(source.rng.integers(0, max(limit, 1), 2 * value.rank), "int64")
    given = [source.constant(source.rng.integers(-3, 4), str(value.array.dtype))] if mode == "constant" else []
    return Choice("Pad", [value, pads, *given], {"mode": mode})


@_on(*ALL, rank=(1, 2, 3, 4))
def _gather(source: Source, value: Value) -> Choice | None:
    axis = _axis(source, value)
    shape = source.rng.integers(1, 5, source.rng.integers(0, 3))
    indices = source.rng.integers(-value.shape[axis], value.shape[axis], shape)
    return Choice("Gather", [value, source.constant(indices, str(source.rng.choice(INTEGERS)))], {"axis": axis})


def _gather_computed(source: Source) -> Choice | None:
    """Gather by computed indices, if they happen to be in range."""
    value, indices = source.value(*ALL, rank=(1, 2, 3)), source.value(*INTEGERS, rank=(0, 1, 2))
    if value is None or indices is None:
        return None
    axis = _axis(source, value)
    inside = (indices.array >= -value.shape[axis]) & (indices.array < value.shape[axis])
    return Choice("Gather", [value, indices], {"axis": axis}) if np.all(inside) else None


@_on(*ALL, rank=(1, 2, 3))
def _gather_elements(source: Source, value: Value) -> Choice | None:
    axis = _axis(source, value)
    indices = source.rng.integers(-value.shape[axis], value.shape[axis], value.shape)
    return Choice("GatherElements", [value, source.constant(indices, "int64")], {"axis": axis})


@_on(*NUMBERS, rank=(1, 2, 3))
def _scatter_elements(source: Source, value: Value) -> Choice | None:
    axis = _axis(source, value)
    # A permutation along the axis: no element is written twice.
    indices = np.argsort(source.rng.random(value.shape), axis=axis)
    operands = [value, source.constant(indices, "int64"), source.constant(np.ones(value.shape), str(value.array.dtype))]
    reduction = str(source.rng.choice(["none", "add", "mul", "max", "min"]))
    return Choice("ScatterElements", operands, {"axis": axis, "reduction": reduction})


@_on(*INTEGERS, rank=(0, 1, 2))
def _one_hot(source: Source, value: Value) -> Choice | None:
    values = source.constant([0, 1], str(source.rng.choice(["float32", "int64"])))
    axis = int(source.rng.integers(-value.rank - 1, value.rank + 1))
    return Choice("OneHot", [value, source.constant([4], "int64"), values], {"axis": axis})


@_on(*NUMBERS, rank=(2, 3))
def _trilu(source: Source, value: Value) -> Choice | None:
    diagonal = source.constant(source.rng.integers(-2, 3), "int64")
    return Choice("Trilu", [value, diagonal], {"upper": int(source.rng.integers(0, 2))})


@_on("float32", rank=4)
def _depth_to_space(source: Source, value: Value) -> Choice | None:
    if value.shape[1] % 4 == 0:
        return Choice("DepthToSpace", [value], {"blocksize": 2, "mode": str(source.rng.choice(["DCR", "CRD"]))})
    even = value.shape[2] % 2 == 0 == value.shape[3] % 2
    return Choice("SpaceToDepth", [value], {"blocksize": 2}) if even else None


@_on("float32", rank=4)
def _resize(source: Source, value: Value) -> Choice | None:
    mode = str(source.rng.choice(["nearest", "linear", "cubic"]))
    modes = ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric"]
    attributes = {"mode": mode, "coordinate_transformation_mode": str(source.rng.choice(modes))}
    if mode == "nearest":
        rounding = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        attributes["nearest_mode"] = str(source.rng.choice(rounding))
    if source.rng.random() < 0.5:
        sizes = [*value.shape[:2], *source.rng.integers(1, 10, 2)]
        return Choice("Resize", [value, None, None, source.constant(sizes, "int64")], attributes)
    scales = [1, 1, *source.rng.choice([0.5, 0.6, 1.0, 1.5, 2.0, 3.0], 2)]
    lengths = np.multiply(scales, value.shape)
    if attributes["coordinate_transformation_mode"] == "align_corners" and (lengths % 1).any():
        # ONNX divides by the exact length, ONNX Runtime by the rounded one.
        return None
    return Choice("Resize", [value, None, source.constant(scales, "float32")], attributes)


@_on("float32", rank=3)
def _einsum(source: Source, value: Value) -> Choice | None:
    b, i, j = value.shape
    products = [("bij,bjk->bik", (b, j, 3)), ("bij,kj->bki", (3, j)), ("bij,bij->b", (b, i, j))]
    equation, shape = products[source.rng.integers(0, 3)]
    other = source.constant(source.rng.standard_normal(shape), "float32")
    return Choice("Einsum", [value, other], {"equation": equation})


@_on(*ALL, rank=(1, 2, 3, 4))
def _shape_of(source: Source, value: Value) -> Choice | None:
    return Choice(str(source.rng.choice(["Shape", "Size"])), [value])


_SMOOTH = ("Sigmoid", "Tanh", "Erf", "Softplus", "Softsign", "Sin", "Cos", "Atan", "Asinh", "Mish", "HardSwish")
_STEPS = ("Floor", "Ceil", "Round", "Sign", "Abs", "Neg", "Relu", "Identity")

_FAMILIES: Mapping[str, Sequence[Operator]] = {
    "smooth": [
        *map(_unary, _SMOOTH),
        *(_unary(name, alpha=0.3) for name in ("LeakyRelu", "Elu", "Celu", "ThresholdedRelu")),
        *(_unary(name) for name in ("Selu", "HardSigmoid", "Tan", "Sinh", "Cosh", "Exp", "Reciprocal")),
        _unary("Gelu"),
        _unary("Gelu", approximate="tanh"),
        *(_within("Sqrt", 0, 1e9), _within("Log", 1e-6, 1e9), _within("Asin", -1, 1), _within("Acos", -1, 1)),
        *(_within("Atanh", -0.999, 0.999), _within("Acosh", 1, 1e9), _prelu),
    ],
    "steps": [
        *map(_unary, _STEPS),
        *(_unary(name, *INTEGERS) for name in ("Abs", "Neg", "Sign", "BitwiseNot")),
        *(_unary("Not", "bool"), _unary("IsNaN"), _unary("IsInf"), _clip, _clip),
    ],
    "arithmetic": [
        *(_binary(name, *NUMBERS) for name in ("Add", "Sub", "Mul", "Add", "Sub", "Mul")),
        *(_binary("Div", "float32"), _divided("Div"), _divided("Mod"), _divided("Mod", fmod=1)),
        *(_binary("Mod", "float32", fmod=1), _binary("Pow", "float32")),
        *(_binary(name, *INTEGERS) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
        *(_several(name, *NUMBERS) for name in ("Min", "Max")),
        *(_several(name, "float32") for name in ("Sum", "Mean")),
    ],
    "logic": [
        *(_binary(name, *NUMBERS) for name in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")),
        *(_binary(name, "bool") for name in ("And", "Or", "Xor", "Equal")),
        *(_where, _where, _where, _cast, _cast, _cast),
    ],
    "reductions": [
        *(_reduce(name, "float32", "int32", "int64") for name in ("ReduceSum", "ReduceMax", "ReduceMin")),
        *(_reduce(name) for name in ("ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare")),
        *(_reduce("ReduceLogSumExp"), _arg("ArgMax"), _arg("ArgMin"), _cumsum, _topk),
    ],
    "normalizations": [
        *(_along("Softmax"), _along("LogSoftmax"), _along("Hardmax"), _along("LpNormalization", p=2), _layer_norm),
        *(_channels("InstanceNormalization", 2), _channels("BatchNormalization", 4), _group_norm),
        *(_unary("MeanVarianceNormalization", axes=[-1]), _unary("LRN", size=3)),
    ],
    "windows": [
        *(_pool("MaxPool"), _pool("MaxPool", ceil_mode=1), _pool("AveragePool"), _pool("LpPool", p=2)),
        *(_pool("AveragePool", count_include_pad=1), _pool("AveragePool", ceil_mode=1)),
        *(_unary("GlobalAveragePool"), _unary("GlobalMaxPool"), _resize, _resize, _depth_to_space),
    ],
    "products": [_conv("Conv"), _conv("Conv"), _conv("ConvTranspose"), _matmul, _matmul, _gemm, _einsum],
    "shapes": [
        *(_reshape, _transpose, _flatten, _squeeze, _unsqueeze, _expand, _tile, _concat, _concat, _split, _slice),
        *(_slice, _pad, _shape_of),
    ],
    "indices": [_gather, _gather_computed, _gather_elements, _scatter_elements, _one_hot, _trilu],
}

EXACT = frozenset(
    [
        *("Abs", "ArgMax", "ArgMin", "Cast", "Ceil", "Clip", "Concat", "DepthToSpace", "Expand", "Flatten", "Floor"),
        *("Gather", "GatherElements", "GlobalMaxPool", "Hardmax", "Identity", "Max", "MaxPool", "Min", "Neg", "OneHot"),
        *("Pad", "ReduceMax", "ReduceMin", "Relu", "Reshape", "Round", "Sign", "Slice", "SpaceToDepth", "Split"),
        *("Squeeze", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where"),
    ]
)
"""Operators without rounding."""
