"""Partition a network into layers for the accelerator and functions for the host.

The accelerator runs anchor operators with an epilogue of bias, residual and ReLU, and maximum pooling of their results.
The host runs everything in between, in as few functions as possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import ir, relax

from anole.extract.graph import workload_of
from anole.ir.mutators import extents, operator_of, variables
from anole.targets.shared.reference import anchor
from anole.task import Workload
from anole_vta.network.network import HostCall, Pool

_RELU, _RELU6, _CLIP = "relax.nn.relu", "relax.nn.relu6", "relax.clip"


@dataclass(frozen=True)
class FusedLayer:
    """An anchor operator with its epilogue, in floating point.

    Attributes:
        data, result, residual: names of values.
        weight: shape HWIO for a convolution, (in, out) for a matrix product.
        bias: shape (out channels,).
        positive: whether negative results are clipped to 0.
        cap: upper bound of the results, if any.
        shape: shape of the result.
    """

    name: str
    workload: Workload
    data: str
    result: str
    residual: str | None
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    positive: bool
    cap: float | None
    shape: tuple[int, ...]

    def run(self, data: NDArray[Any], residual: NDArray[Any] | None) -> NDArray[np.float32]:
        """Compute the layer in floating point."""
        flat = data if self.weight.ndim == 4 else data.reshape(-1, self.weight.shape[0])
        total = (anchor(self.workload, flat, self.weight) + self.bias).reshape(self.shape)
        if residual is not None:
            total = total + residual
        return np.clip(total, 0, self.cap) if self.positive else total


Part = FusedLayer | Pool | HostCall


@dataclass(frozen=True)
class Partition:
    """The parts of a network in topological order; `host` is the module with the functions of the host."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parts: tuple[Part, ...]
    host: tvm.IRModule


class Partitioner:
    """The partitioning of one network.

    Args:
        main: the network in normal form.
        names: names of its anchor operators, in order.
        takes: whether the accelerator can run an anchor operator, given its position among all anchors.
        can_add: whether a layer has room to add a residual.
        can_pool: whether the accelerator can run a maximum pool on data of the given shape.
    """

    def __init__(
        self,
        main: relax.Function,
        names: Sequence[str],
        takes: Callable[[Workload, int], bool],
        can_add: Callable[[Workload], bool],
        can_pool: Callable[[Pool, tuple[int, ...]], bool],
    ) -> None:
        self._main, self._layer_names = main, names
        self._takes, self._can_add, self._can_pool = takes, can_add, can_pool
        self._bindings = [binding for block in main.body.blocks for binding in block.bindings]
        self._outputs = variables(main.body.body)
        last = self._bindings[-1] if self._bindings else None
        if last is not None and isinstance(last.value, relax.Tuple) and last.var.same_as(main.body.body):
            # The tuple of several outputs is not an operator.
            self._outputs = variables(self._bindings.pop().value)
        self._users: dict[relax.Var, list[int]] = {}
        for position, binding in enumerate(self._bindings):
            for var in dict.fromkeys(variables(binding.value)):
                self._users.setdefault(var, []).append(position)
        self._returned = set(self._outputs)
        self._names = {param: f"input{number}" for number, param in enumerate(main.params)}
        self._names |= {binding.var: f"v{position}" for position, binding in enumerate(self._bindings)}

    def split(self) -> Partition:
        """Partition the network."""
        layers, inner = self._layers()
        builder, parts, pending = relax.BlockBuilder(), list[Part](), list[int]()
        accelerated = {layer.result for layer in layers.values()}
        for position, binding in enumerate(self._bindings):
            part: Part | None = layers.get(position) or self._max_pool(binding, accelerated)
            if part is not None:
                self._flush(pending, parts, builder)
                parts.append(part)
                accelerated.add(self._names[binding.var])
            elif position not in inner:
                pending.append(position)
        self._flush(pending, parts, builder)
        outputs = tuple(self._names[var] for var in self._outputs)
        return Partition(tuple(self._names[p] for p in self._main.params), outputs, tuple(parts), builder.get())

    def _layers(self) -> tuple[dict[int, FusedLayer], set[int]]:
        """Return the layers by the positions of their last operators, and the positions of their other operators."""
        layers: dict[int, FusedLayer] = {}
        inner: set[int] = set()
        number = -1
        for position, binding in enumerate(self._bindings):
            call = binding.value
            workload = workload_of(call) if operator_of(call) else None
            if workload is None:
                continue
            number += 1
            if not isinstance(call.args[0], relax.Var) or not self._takes(workload, number):
                continue
            positions, layer = self._layer(position, call, workload, self._layer_names[number], inner | set(layers))
            layers[positions[-1]] = layer
            inner |= set(positions[:-1])
        return layers, inner

    def _layer(
        self, position: int, call: ir.Call, workload: Workload, name: str, assigned: set[int]
    ) -> tuple[list[int], FusedLayer]:
        """Return the positions of a layer's operators, and the layer."""
        weight = call.args[1].value.numpy()
        bias: NDArray[np.float32] | None = None
        residual, positive, cap = None, False, None
        positions = [position]
        while not positive and (following := self._only_user(positions[-1])) is not None and following not in assigned:
            var, user = self._bindings[positions[-1]].var, self._bindings[following].value
            operator = operator_of(user)
            if operator == "relax.add":
                other = user.args[1] if user.args[0].same_as(var) else user.args[0]
                constant = _channels(other, weight.shape[-1])
                if constant is not None and bias is None:
                    bias = constant
                elif residual is None and _is_residual_add(var, other, user) and self._can_add(workload):
                    residual = self._names[other]
                else:
                    break
            elif operator in (_RELU, _RELU6) or (operator == _CLIP and _number(user.args[1]) == 0):
                positive = True
                upper = 6.0 if operator == _RELU6 else _number(user.args[2]) if operator == _CLIP else math.inf
                cap = None if upper == math.inf else upper
            else:
                break
            positions.append(following)
        if bias is None:
            bias = np.zeros(weight.shape[-1], np.float32)
        last = self._bindings[positions[-1]]
        names = self._names[call.args[0]], self._names[last.var], residual
        return positions, FusedLayer(name, workload, *names, weight, bias, positive, cap, tuple(extents(last.value)))

    def _only_user(self, position: int) -> int | None:
        """Return the position of a value's only user, or None if it has no user or several, or is an output."""
        var = self._bindings[position].var
        users = self._users.get(var, [])
        return users[0] if len(users) == 1 and var not in self._returned else None

    def _max_pool(self, binding: Any, accelerated: set[str]) -> Pool | None:
        call = binding.value
        if operator_of(call) != "relax.nn.max_pool2d" or self._names.get(call.args[0]) not in accelerated:
            return None
        attrs = call.attrs
        if attrs.layout != "NHWC" or attrs.ceil_mode or any(int(step) != 1 for step in attrs.dilation):
            return None
        kernel, strides = ((int(rows), int(columns)) for rows, columns in (attrs.pool_size, attrs.strides))
        top, left, bottom, right = (int(side) for side in attrs.padding)
        data, name = self._names[call.args[0]], self._names[binding.var]
        pool = Pool(f"max_pool_{name}", kernel, strides, (top, left, bottom, right), data, name, exponent=0)
        return pool if self._can_pool(pool, tuple(extents(call.args[0]))) else None

    def _flush(self, pending: list[int], parts: list[Part], builder: relax.BlockBuilder) -> None:
        """Turn the pending operators into one host function."""
        positions = set(pending)
        bindings = [self._bindings[position] for position in pending]
        defined = {binding.var for binding in bindings}
        variables_read = dict.fromkeys(var for binding in bindings for var in variables(binding.value))
        arguments = [var for var in variables_read if var not in defined]
        results = [
            binding.var
            for binding in bindings
            if binding.var in self._returned or not positions.issuperset(self._users.get(binding.var, []))
        ]
        pending.clear()
        if not results:
            return
        function = f"host{len(parts)}"
        _emit(builder, function, bindings, arguments, results)
        names = self._names
        parts.append(HostCall(function, tuple(names[v] for v in arguments), tuple(names[v] for v in results)))


def _emit(
    builder: relax.BlockBuilder,
    name: str,
    bindings: Sequence[Any],
    arguments: Sequence[relax.Var],
    results: Sequence[relax.Var],
) -> None:
    """Add a function with the given bindings to a module; the function returns a tuple."""
    params = [relax.Var(f"x{number}", var.ty) for number, var in enumerate(arguments)]
    substitutes: dict[relax.Var, ir.Expr] = dict(zip(arguments, params, strict=True))
    with builder.function(name, params):
        with builder.dataflow():
            for binding in bindings:
                substitutes[binding.var] = builder.emit(_substitute(binding.value, substitutes))
            output = builder.emit_output(relax.Tuple([substitutes[var] for var in results]))
        builder.emit_func_output(output)


def _substitute(expr: ir.Expr, names: Mapping[relax.Var, ir.Expr]) -> ir.Expr:
    if isinstance(expr, relax.Var):
        return names.get(expr, expr)
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([_substitute(item, names) for item in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(_substitute(expr.tuple_value, names), expr.index)
    if isinstance(expr, ir.Call):
        return ir.Call(expr.op, [_substitute(item, names) for item in expr.args], expr.attrs, expr.ty_args)
    return expr


def _channels(expr: ir.Expr, channels: int) -> NDArray[np.float32] | None:
    """Return a constant as one value per channel, or None for other expressions; a scalar is broadcast."""
    if not isinstance(expr, ir.GenericConst):
        return None
    value = expr.value.numpy()
    if value.size == 1 or (value.size == channels and value.shape[-1] == channels):
        return np.broadcast_to(value.ravel(), (channels,)).astype(np.float32)
    return None


def _is_residual_add(value: relax.Var, other: ir.Expr, call: ir.Call) -> bool:
    """Whether a call adds two different variables, both with the shape and type of its result."""
    if not isinstance(other, relax.Var) or other.same_as(value):
        return False
    types = [(str(expr.ty.dtype), extents(expr)) for expr in (value, other, call)]
    return types[0] == types[1] == types[2]


def _number(expr: ir.Expr) -> float:
    return float(expr.value)
