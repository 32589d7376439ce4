"""Run the backend test suite of the ``onnx`` package against Anole on the local CPU; print a CSV summary by operator.

    python -m benchmarks.zoo.conformance > docs/results/data/conformance.csv
    python -m benchmarks.zoo.conformance --cases 'test_resize_*'

Each node case is a network with one operator, or with its expanded definition, and has inputs and expected outputs.
Outputs are compared with the suite's tolerances; `kit.cases` lists the outcomes. Cases are ``outside`` unless they are
inference on floats, integers or booleans with known shapes. Inputs that determine a shape (`SHAPES`) are constants, as
in typical files.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from benchmarks.common.arguments import list_of, make_parser
from benchmarks.common.rows import print_rows
from benchmarks.zoo.summary import COLUMNS, summarize
from kit.cases import Outcome, one_line, run_cases, run_model

SHAPES: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(
        ("AffineGrid", "CastLike", "CenterCropPad", "Compress", "CumProd", "CumSum", "Expand", "OneHot"), (1,)
    ),
    **dict.fromkeys(("Reshape", "Split", "Squeeze", "Tile", "TopK", "Trilu", "Unsqueeze", "Upsample"), (1,)),
    **dict.fromkeys(("BlackmanWindow", "ConstantOfShape", "HammingWindow", "HannWindow", "If"), (0,)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (4,)),
    **dict.fromkeys(("Col2Im", "DFT", "Dropout"), (1, 2)),
    **dict.fromkeys(("Pad", "STFT"), (1, 3)),
    **{"Loop": (0, 1), "MaxUnpool": (2,), "MelWeightMatrix": (0, 1, 2, 3, 4)},
    **{"Range": (0, 1, 2), "Resize": (1, 2, 3), "Slice": (1, 2, 3, 4)},
}
"""The inputs that determine a shape, an axis or a branch, by operator."""

_TYPES = (
    *(TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.BOOL),
    *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
    *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
)

_DATA_DEPENDENT = ("ImageDecoder", "NonMaxSuppression", "NonZero", "Unique")
_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")


def main() -> None:
    """Print the summary."""
    parser = make_parser(__doc__)
    parser.add_argument("--cases", type=list_of(), default=["*"], help="patterns of names, comma-separated")
    args = parser.parse_args()
    names = [name for name in suite() if any(fnmatch(name, pattern) for pattern in args.cases)]
    print_rows(COLUMNS, summarize(run_all(names)))


@cache
def suite() -> dict[str, Any]:
    """Return the node cases of the ``onnx`` package, by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def run_all(names: Iterable[str]) -> Iterator[tuple[str, str, Outcome]]:
    """Yield operator, name and outcome of each case, in order."""
    suite()
    for name, outcome in run_cases(names, run_case):
        yield _base(suite()[name]).model.graph.node[0].op_type, name, outcome


def out_of_scope_reason(case: Any) -> str | None:
    """Return why a case is out of scope for Anole, or None if it is in scope."""
    graph = case.model.graph
    for value in (*graph.input, *graph.output):
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            return f"{kind.removesuffix('_type')} {value.name}"
        if value.type.tensor_type.elem_type not in _TYPES:
            return f"tensor of {TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()}"
    base = _base(case)
    node = base.model.graph.node[0]
    if node.domain not in ("", "ai.onnx"):
        return f"domain {node.domain}"
    operators = {node.op_type for node in (*base.model.graph.node, *graph.node)}
    for operator in operators.intersection(_DATA_DEPENDENT):
        return f"the shape of {operator}'s output depends on data"
    for operator in operators.intersection(_RANDOM):
        return f"{operator} is random"
    if node.op_type == "BatchNormalization" and any(a.name == "training_mode" and a.i for a in node.attribute):
        return "training"
    if node.op_type == "Dropout" and len(node.input) > 2:
        values = dict(zip([value.name for value in graph.input], case.data_sets[0][0], strict=True))
        if values.get(node.input[2], False):
            return "training"
    return None


def constant_inputs(case: Any) -> list[str]:
    """Return the names of the inputs that determine a shape, in the order of the graph."""
    base = _base(case)
    names = {
        node.input[index]
        for node in base.model.graph.node
        for index in ((1,) if node.op_type.startswith("Reduce") else SHAPES.get(node.op_type, ()))
        if index < len(node.input) and node.input[index]
    }
    return [value.name for value in case.model.graph.input if value.name in names]


def _base(case: Any) -> Any:
    """Return the case of the operator if a case is an expanded definition, else the case itself."""
    return suite().get(re.sub(r"_expanded.*", "", case.name), case)


def run_case(name: str, folder: Path) -> Outcome:
    """Run a case of `suite` in this process."""
    from onnx.backend.test.runner import Runner

    case = suite()[name]
    if (outside := out_of_scope_reason(case)) is not None:
        return Outcome("outside", outside)
    inputs, expected = (_arrays(values) for values in case.data_sets[0])
    outputs = _outputs(case, inputs, folder / "case.onnx")
    try:
        Runner.assert_similar_outputs(expected, outputs, rtol=case.rtol, atol=max(case.atol, _rounding(expected)))
    except AssertionError as error:
        return Outcome("wrong", one_line(error))
    return Outcome("right")


def _rounding(expected: Iterable[Any]) -> float:
    """Return a bound on the rounding errors of the outputs, since some suites expect a rounding error instead of 0."""
    floats = [array for array in expected if array.dtype in (np.float16, np.float32)]
    errors = [np.finfo(array.dtype).eps * np.abs(array[np.isfinite(array)]).max(initial=0) for array in floats]
    return 4 * float(max(errors, default=0))


def _arrays(values: Iterable[Any]) -> list[Any]:
    """Return inputs or outputs as arrays; some are stored as ONNX tensors."""
    return [numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value) for value in values]


def _outputs(case: Any, inputs: Sequence[Any], path: Path) -> list[Any]:
    """Run a case whose inputs that determine a shape are made constants of the file; return its outputs."""
    arrays = {value.name: array for value, array in zip(case.model.graph.input, inputs, strict=True)}
    proto = onnx.ModelProto()
    proto.CopyFrom(case.model)
    for name in constant_inputs(case):
        proto.graph.initializer.append(numpy_helper.from_array(arrays.pop(name), name))
    kept = [value for value in proto.graph.input if value.name in arrays]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    return run_model(proto, arrays, path)


if __name__ == "__main__":
    main()
