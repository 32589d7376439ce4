"""An imported model: its Relax module and interface, and the file that stores them.

The file starts with a line of JSON, which includes the module as serialized by TVM; the weights follow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from anole.codec import decode, encode
from anole.documents.build import TensorInfo
from anole.errors import DocumentError, cause
from anole.files import write_atomically
from anole.strict_json import parse_json

if TYPE_CHECKING:
    import tvm

_ALIGNMENT_BYTES = 64


@dataclass(frozen=True)
class Imported:
    """A model as a Relax module whose function ``main`` maps all inputs to the output, or to the tuple of outputs.

    Attributes:
        module: the Relax module; weights are constants in it.
        anchors: names of the convolution and matrix-product layers, in execution order.
        prepared: changes to the operators when an ONNX file was prepared, such as ``Shape: 12 before, 0 after``.
    """

    module: tvm.IRModule
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    anchors: tuple[str, ...]
    prepared: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Header:
    """The first line of the file; `module` has variables in place of weights, and also stores the list of variables."""

    module: str
    weights: tuple[TensorInfo, ...]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    anchors: tuple[str, ...]
    prepared: tuple[str, ...]


def write_network(path: Path, imported: Imported) -> None:
    """Write a network, unless the file already has this content."""
    from tvm import ir, relax

    from anole.ir.mutators import value_of

    variables: dict[ir.GenericConst, relax.Var] = {}
    module = _map_ir(imported.module, ir.GenericConst, lambda node: variables.setdefault(node, relax.Var("", node.ty)))
    weights = [np.asarray(value_of(constant), order="C") for constant in variables]
    infos = tuple(TensorInfo("", array.shape, str(array.dtype)) for array in weights)
    interface = imported.inputs, imported.outputs, imported.anchors, imported.prepared
    head = _Header(ir.save_json([module, list(variables.values())]), infos, *interface)
    line = json.dumps(encode(head)).encode() + b"\n"
    parts: list[bytes | memoryview] = [line, bytes(-len(line) % _ALIGNMENT_BYTES)]
    for array in weights:
        parts += [array.reshape(-1).view(np.uint8).data, bytes(-array.nbytes % _ALIGNMENT_BYTES)]
    write_atomically(path, b"".join(parts))


def read_network(path: Path) -> Imported:
    """Return a stored network; raises DocumentError if it is missing or damaged."""
    from tvm import ir, relax

    try:
        with path.open("rb") as stream:
            head, offset = decode(_Header, parse_json(stream.readline())), stream.tell()
        content = np.memmap(path, np.uint8, "r")
        module, variables = ir.load_json(head.module)
        weights = {}
        for variable, info in zip(variables, head.weights, strict=True):
            offset += -offset % _ALIGNMENT_BYTES
            end = offset + int(np.prod(info.shape)) * np.dtype(info.dtype).itemsize
            weights[variable] = relax.const(content[offset:end].view(info.dtype).reshape(info.shape), info.dtype)
            offset = end
        module = _map_ir(module, relax.Var, lambda variable: weights.get(variable, variable))
    except Exception as error:
        raise DocumentError(path, f"cannot be read: {cause(error)}", "extract") from error
    return Imported(module, head.inputs, head.outputs, head.anchors, head.prepared)


def _map_ir(module: tvm.IRModule, kind: type, change: Callable[[Any], Any]) -> tvm.IRModule:
    import tvm
    import tvm_ffi

    functions = {name: tvm_ffi.structural_map(function, (kind, change)) for name, function in module.functions_items()}
    return tvm.IRModule(functions, attrs=module.attrs)
