"""Import of ONNX graphs into Relax by TVM's importer, extended with Anole's converters."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from anole.extract.onnx.operators import CONVERTERS
from anole.extract.onnx.operators.call import Call
from anole.extract.onnx.protos import opset_of


def import_graph(
    proto: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, str]
) -> tvm.IRModule:
    """Return the Relax module of a model; weights become constants, and inputs the parameters of ``main``.

    Raises:
        Exception: any class; TVM or a converter cannot import the model.
    """
    importer = _Importer({name: list(shape) for name, shape in shapes.items()}, dict(dtypes))
    # On failure, TVM prints the Relax expressions of an operator's inputs.
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return importer.from_onnx(proto.graph, opset_of(proto))


def operators() -> frozenset[str]:
    """Return the operator types that can be imported."""
    # TVM's importer handles If outside of its table.
    return frozenset(onnx_frontend._get_convert_map()) | CONVERTERS.keys() | {"If"}


class _Importer(onnx_frontend.ONNXGraphImporter):  # type: ignore[misc]
    """TVM's graph importer; Anole's converters override TVM's for the same operators."""

    def _convert_operator(self, op_name: str, inputs: list[Any], attrs: dict[str, Any], opset: int) -> relax.Expr:
        if op_name not in CONVERTERS:
            return super()._convert_operator(op_name, inputs, attrs, opset)
        values = {name: _value(value) for name, value in attrs.items()}
        metadata = values.pop("tvm_custom")
        n_outputs = metadata["num_outputs"]
        call = Call(op_name, metadata["name"], self.bb, tuple(inputs), values, n_outputs, opset)
        result = CONVERTERS[op_name](call)
        if isinstance(result, Sequence):
            # The importer would mistake the tuple for the only output.
            result = result[0] if n_outputs == 1 else relax.Tuple(list(result))
        return self.bb.normalize(result)

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        """Skip the check, since `prepare` has already rejected unsupported operators."""


def _value(attribute: Any) -> Any:
    """Convert an attribute's value to plain Python and NumPy types."""
    if isinstance(attribute, bytes):
        return attribute.decode()
    if isinstance(attribute, onnx.TensorProto):
        return onnx.numpy_helper.to_array(attribute)
    return tuple(map(_value, attribute)) if isinstance(attribute, tuple) else attribute
