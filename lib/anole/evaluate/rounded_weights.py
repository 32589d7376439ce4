"""References whose dense layers have their weights rounded as a target that stores them in few bits would."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Self

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper, shape_inference
from torch.utils._python_dispatch import TorchDispatchMode

from anole.config.entries import ModelSpec
from anole.extract.onnx.dimensions import fix_inputs, input_infos
from anole.targets.base import Target
from anole.targets.shared.weight_only import StoredWeights
from anole.task import Dense, weight_scheme

_aten = torch.ops.aten

_OPERANDS = {
    **dict.fromkeys((_aten.mm.default, _aten.matmul.default), (0, 1, False)),
    _aten.addmm.default: (1, 2, False),
    _aten.linear.default: (0, 1, True),
}
"""Which operands of a product are its data and its weight, and whether the weight is (out, in)."""


def _rounded(target: Target, rows: int, weight: NDArray[Any]) -> NDArray[Any]:
    """Returns the weight, of shape (in, out), of a dense layer as a target stores it."""
    scheme = weight_scheme(target.narrowed(Dense(rows, *weight.shape)))
    return weight if scheme is None else StoredWeights.rounded(weight, scheme).values()


class RoundedWeights(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which products of a network of torch read its parameters rounded."""

    def __init__(self, network: torch.nn.Module, target: Target) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._places = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}
        self._target = target

    def __enter__(self) -> Self:
        """Begins, and lets attention show its products instead of computing all of it in one operator."""
        self._was_fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        """Ends."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        torch.backends.mha.set_fastpath_enabled(self._was_fast)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes an operator, maybe with a rounded weight."""
        if func in _OPERANDS:
            data, place, is_transposed = _OPERANDS[func]
            weight = args[place]
            if weight.dim() == 2 and weight.untyped_storage().data_ptr() in self._places:
                values = (weight.T if is_transposed else weight).numpy()
                rounded = torch.from_numpy(_rounded(self._target, prod(args[data].shape[:-1]), values))
                args = (*args[:place], rounded.T if is_transposed else rounded, *args[place + 1 :])
        return func(*args, **(kwargs or {}))


def round_weights(file: onnx.ModelProto, model: ModelSpec, target: Target) -> None:
    """Rounds the weights of the dense layers in a model's file, which holds them all."""
    fix_inputs(file, input_infos(model, file))
    infos = [*file.graph.input, *shape_inference.infer_shapes(file).graph.value_info]
    shapes = {each.name: [extent.dim_value for extent in each.type.tensor_type.shape.dim] for each in infos}
    weights: Mapping[str, onnx.TensorProto] = {each.name: each for each in file.graph.initializer}
    for node in file.graph.node:
        if node.op_type not in ("Gemm", "MatMul") or node.input[1] not in weights:
            continue
        given = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        values, shape = numpy_helper.to_array(weights[node.input[1]]), shapes.get(node.input[0], [])
        if values.ndim != 2 or values.dtype != np.float32:
            continue
        is_transposed = bool(given.get("transB", 0))
        rows = prod(shape[1:] if given.get("transA", 0) else shape[:-1])
        rounded = _rounded(target, max(rows, 1), values.T if is_transposed else values)
        name = f"{node.input[1]}.anole.rounded.{rows}"
        tensor = numpy_helper.from_array(np.ascontiguousarray(rounded.T if is_transposed else rounded), name)
        if name not in weights:
            file.graph.initializer.append(tensor)
            weights = {**weights, name: tensor}
        node.input[1] = name
