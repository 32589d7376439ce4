"""Converters for operators with constant inputs only, which are evaluated at import."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from anole.extract.onnx.operators.call import Call, Converter, const

_TYPES = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}


def _constant(call: Call) -> relax.Expr:
    for name, value in call.attributes.items():
        if name == "value":
            return const(value, str(np.asarray(value).dtype))
        if name in _TYPES:
            return const(value, _TYPES[name])
    raise call.refuse(f"found {', '.join(call.attributes)}; allowed: value, {', '.join(_TYPES)}")


def _evaluate(call: Call) -> relax.Expr:
    """Evaluate the operator with ONNX's reference implementation."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    names = [f"x{index}" for index in range(len(call.inputs))]
    values: dict[str, Any] = {name: call.require_constant(index, name) for index, name in enumerate(names)}
    node = helper.make_node(call.operator, names, ["y"], **call.attributes)
    inputs = [helper.make_empty_tensor_value_info(name) for name in names]
    graph = helper.make_graph([node], "constant", inputs, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", call.opset)])
    value = np.asarray(ReferenceEvaluator(model).run(None, values)[0])
    return const(value, str(value.dtype))


CONVERTERS: dict[str, Converter] = {
    "Constant": _constant,
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix", "Range"), _evaluate),
}
"""Converters by operator type."""
