"""A builder of networks in normal form, and an interpreter that runs them without a compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax

from anole.extract.graph import workload_of
from anole.targets.shared.reference import anchor

from ...compiler.conftest import network as network
from ...compiler.conftest import project as project


class NetworkBuilder:
    """A network with one input, built operator by operator, with random weights.

    Attributes:
        main: the function, after the call of `returns`.
        names: names of the anchor operators, in order.
    """

    def __init__(self, shape: Sequence[int], seed: int = 0) -> None:
        self._builder, self._rng = relax.BlockBuilder(), np.random.default_rng(seed)
        self.emit: Callable[[Any], Any] = self._builder.emit
        self.x = relax.Var("x", relax.TensorType(list(shape), "float32"))
        self._calls: list[Callable[[], Any]] = []
        self.names: list[str] = []
        self._function = self._builder.function("main", [self.x])
        self._function.__enter__()
        self._dataflow = self._builder.dataflow()
        self._dataflow.__enter__()

    def constant(self, *shape: int, scale: float = 0.5) -> Any:
        return relax.const((scale * self._rng.standard_normal(shape)).astype(np.float32))

    def conv(self, x: Any, channels: int, kernel: int = 1, scale: float = 0.5, **settings: Any) -> Any:
        self.names.append(f"conv{len(self.names)}")
        inputs = int(x.ty.shape[3]) // int(settings.get("groups", 1))
        weight = self.constant(kernel, kernel, inputs, channels, scale=scale)
        settings = {"padding": kernel // 2, **settings}
        return self.emit(relax.op.nn.conv2d(x, weight, data_layout="NHWC", kernel_layout="HWIO", **settings))

    def dense(self, x: Any, features: int) -> Any:
        self.names.append(f"dense{len(self.names)}")
        return self.emit(relax.op.matmul(x, self.constant(int(x.ty.shape[-1]), features)))

    def add(self, x: Any, y: Any) -> Any:
        return self.emit(relax.op.add(x, y))

    def bias(self, x: Any, scale: float = 0.5) -> Any:
        return self.add(x, self.constant(int(x.ty.shape[-1]), scale=scale))

    def relu(self, x: Any) -> Any:
        return self.emit(relax.op.nn.relu(x))

    def relu6(self, x: Any) -> Any:
        return self.emit(relax.op.nn.relu6(x))

    def clip(self, x: Any, low: float, high: float) -> Any:
        return self.emit(relax.op.clip(x, low, high))

    def scaled(self, x: Any, factor: float = 0.5) -> Any:
        return self.emit(relax.op.multiply(x, relax.const(np.float32(factor))))

    def max_pool(self, x: Any, kernel: int = 2, stride: int = 2, **settings: Any) -> Any:
        window = {"pool_size": (kernel, kernel), "strides": (stride, stride), "padding": kernel // 3}
        return self.emit(relax.op.nn.max_pool2d(x, **{**window, "layout": "NHWC", "out_layout": "NHWC", **settings}))

    def returns(self, *values: Any) -> NetworkBuilder:
        output = self._builder.emit_output(values[0] if len(values) == 1 else relax.Tuple(list(values)))
        self._dataflow.__exit__(None, None, None)
        self._builder.emit_func_output(output)
        self._function.__exit__(None, None, None)
        self.main = relax.transform.CanonicalizeBindings()(self._builder.get())["main"]
        return self


def interpret(function: Any, arguments: Sequence[Any]) -> list[Any]:
    """Compute a function of a few operators in NumPy."""
    values = dict(zip(function.params, arguments, strict=True))
    for block in function.body.blocks:
        for binding in block.bindings:
            values[binding.var] = _value(binding.value, values)
    found = _value(function.body.body, values)
    return list(found) if isinstance(found, tuple) else [found]


def _value(expr: Any, values: dict[Any, Any]) -> Any:
    if isinstance(expr, relax.Var):
        return values[expr]
    if isinstance(expr, relax.Tuple):
        return tuple(_value(each, values) for each in expr.fields)
    if isinstance(expr, ir.GenericConst):
        return expr.value.numpy()
    arguments = [_value(each, values) for each in expr.args if isinstance(each, (relax.Var, ir.GenericConst))]
    match expr.op.name:
        case "relax.nn.conv2d" | "relax.matmul":
            return anchor(workload_of(expr), *arguments)
        case "relax.add":
            return arguments[0] + arguments[1]
        case "relax.multiply":
            return arguments[0] * arguments[1]
        case "relax.nn.relu":
            return np.maximum(arguments[0], 0)
        case "relax.nn.relu6":
            return np.clip(arguments[0], 0, 6)
        case "relax.clip":
            return np.clip(arguments[0], *(np.float32(each.value) for each in expr.args[1:]))
        case "relax.nn.max_pool2d":
            return _max_pool(arguments[0], expr.attrs)
    raise AssertionError(f"the interpreter does not support {expr.op.name}")


def _max_pool(data: Any, attrs: Any) -> Any:
    top, left, bottom, right = (int(each) for each in attrs.padding)
    padded = np.pad(data, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=-np.inf)
    (kh, kw), (sh, sw) = ([int(each) for each in pair] for pair in (attrs.pool_size, attrs.strides))
    rows, columns = (padded.shape[1] - kh) // sh + 1, (padded.shape[2] - kw) // sw + 1
    out = np.empty((len(data), rows, columns, data.shape[3]), np.float32)
    for i in range(rows):
        for j in range(columns):
            out[:, i, j] = padded[:, i * sh : i * sh + kh, j * sw : j * sw + kw].max(axis=(1, 2))
    return out
