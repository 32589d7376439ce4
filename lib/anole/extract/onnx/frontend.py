"""Hands ONNX graphs to TVM's importer, with Anole's own converters."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from anole.extract.onnx.operators import CONVERTERS
from anole.extract.onnx.operators.call import Call, Converter


def import_graph(
    proto: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, str]
) -> tvm.IRModule:
    """Returns the Relax module of a model; its weights are constants, and its inputs the arguments of ``main``.

    Raises:
        Exception: TVM or a converter cannot import the model; of any class.
    """
    # On failure, TVM prints the Relax expressions of the operator's inputs.
    with _own_converters(), _unchecked(), warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return onnx_frontend.from_onnx(proto, {name: list(shape) for name, shape in shapes.items()}, dict(dtypes))


def operators() -> frozenset[str]:
    """Returns the types of the operators that can be imported."""
    # TVM's importer builds branches by itself.
    return frozenset(onnx_frontend._get_convert_map()) | CONVERTERS.keys() | {"If"}


@contextmanager
def _own_converters() -> Iterator[None]:
    """Adds the converters to the table in which TVM's importer looks them up; it has no argument for them."""
    original = onnx_frontend._get_convert_map
    own = {operator: _Registered(operator, converter) for operator, converter in CONVERTERS.items()}
    onnx_frontend._get_convert_map = lambda: {**original(), **own}
    try:
        yield
    finally:
        onnx_frontend._get_convert_map = original


@contextmanager
def _unchecked() -> Iterator[None]:
    """Keeps TVM's importer from checking the format: `check_format` did so before, and TVM would only warn."""
    original = onnx.checker.check_model
    onnx.checker.check_model = lambda model: None
    try:
        yield
    finally:
        onnx.checker.check_model = original


@dataclass(frozen=True)
class _Registered:
    """A converter in the form that TVM's importer expects."""

    operator: str
    converter: Converter

    def get_converter(self, opset: int) -> Callable[..., relax.Expr]:
        """Returns the function that TVM's importer calls for an operator."""

        def convert(builder: relax.BlockBuilder, inputs: list[Any], attributes: dict[str, Any], _: Any) -> relax.Expr:
            given = dict(attributes)
            about = given.pop("tvm_custom")
            values = {name: _value(value) for name, value in given.items()}
            n_outputs = about["num_outputs"]
            call = Call(self.operator, about["name"], builder, tuple(inputs), values, n_outputs, opset)
            found = self.converter(call)
            if not isinstance(found, Sequence):
                return found
            # TVM's importer would take the tuple itself for the only output.
            return found[0] if n_outputs == 1 else relax.Tuple(list(found))

        return convert


def _value(attribute: Any) -> Any:
    """Returns an attribute's value without ONNX's classes."""
    if isinstance(attribute, bytes):
        return attribute.decode()
    if isinstance(attribute, onnx.TensorProto):
        return onnx.numpy_helper.to_array(attribute)
    return tuple(map(_value, attribute)) if isinstance(attribute, tuple) else attribute
