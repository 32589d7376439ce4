"""Leaves an operator to TVM's importer, where that is right."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from anole.extract.onnx.operators.call import Call

_CLASSES: dict[str, Any] = dict(onnx_frontend._get_convert_map())


def by_tvm(call: Call) -> relax.Expr:
    """Returns what TVM's importer makes of an operator.

    Raises:
        Exception: TVM cannot import it; of any class.
    """
    attributes = {name: _as_read(value) for name, value in call.attributes.items()}
    attributes["tvm_custom"] = {"name": call.name, "num_outputs": call.n_outputs}
    convert = _CLASSES[call.operator].get_converter(call.opset)
    return call.builder.normalize(convert(call.builder, onnx_frontend.onnx_input(call.inputs), attributes, [{}, {}]))


def _as_read(value: Any) -> Any:
    """Returns an attribute as TVM's importer reads it: strings as bytes."""
    if isinstance(value, str):
        return value.encode()
    return tuple(map(_as_read, value)) if isinstance(value, tuple) else value
