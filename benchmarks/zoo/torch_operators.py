"""Run torch's sample inputs of its operators against Anole on the local CPU; print a CSV summary by operator.

    python -m benchmarks.zoo.torch_operators > docs/results/data/torch_operators.csv
    python -m benchmarks.zoo.torch_operators --cases 'index_select*,nn.functional.*pool*'

A case is a network that calls one operator of torch's test table (`op_db`) with a sample from the table: tensors are
inputs of the network, all other arguments are fixed. It is traced by `torch.export` and imported, and its outputs are
compared with torch's. `kit.cases` lists the outcomes. The column ``cases`` has the type and number of each sample that
is not right. Cases are ``outside`` if they are random, complex, sparse or uninitialized, have a tensor without
elements, or take or return no tensor. Also ``outside`` are shapes that depend on data, minima and maxima of NaN, and
operators that are not core ATen and have no converter, such as a singular value decomposition.

Torch does not specify which of several equal elements `topk`, `sort` and others select. Their indices are right if the
elements at these indices are equal to torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils import _pytree as pytree

from anole.errors import AnoleError
from benchmarks.common.arguments import list_of, make_parser
from benchmarks.common.rows import print_rows
from benchmarks.zoo.summary import COLUMNS, summarize
from kit.cases import Outcome, compute, one_line, run_cases

DTYPES = (torch.float32, torch.int64, torch.bool)
N_SAMPLES = 3
"""The maximum number of samples per operator and type."""
_N_CANDIDATES = 40
_SEED = 0
_TOLERANCE = 1e-4
_DIM_POSITIONS = {"argsort": 0, "kthvalue": 1, "mode": 0, "nanmedian": 0, "sort": 0, "topk": 1}
"""Operators whose last output is indices in an arbitrary order of ties, and the position of the argument `dim`."""


class Call(torch.nn.Module):
    """A network that calls an operator, and whose inputs are the tensors among the arguments.

    Attributes:
        tensors: the inputs, by name.
    """

    def __init__(self, operator: Callable[..., Any], sample: Any) -> None:
        super().__init__()
        self._operator = operator
        self._leaves, self._structure = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        self._positions = [position for position, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = {f"input_{position}": _dense(self._leaves[position].detach()) for position in self._positions}

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Call the operator."""
        leaves = list(self._leaves)
        for position, tensor in zip(self._positions, tensors, strict=True):
            leaves[position] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self._structure)
        return self._operator(*args, **kwargs)


def main() -> None:
    """Print the summary."""
    parser = make_parser(__doc__)
    parser.add_argument("--cases", type=list_of(), default=["*"], help="patterns of operators, comma-separated")
    args = parser.parse_args()
    print_rows(COLUMNS, summarize(run_all(case_names(args.cases))))


@cache
def table() -> dict[str, Any]:
    """Return torch's table of operators, by name."""
    # Otherwise the import would forbid this process to set flags of backends.
    with patch.object(torch.backends, "disable_global_flags"):
        from torch.testing._internal.common_methods_invocations import op_db

    return {".".join(filter(None, (entry.name, entry.variant_test_name))): entry for entry in op_db}


def case_names(patterns: Iterable[str] = ("*",)) -> list[str]:
    """Return the names of cases: operator, type and number of a sample; the numbers are spread over torch's samples."""
    names = []
    for operator, entry in table().items():
        for dtype in DTYPES:
            if dtype in entry.dtypes and any(fnmatch(operator, pattern) for pattern in patterns):
                count = sum(1 for _ in _samples(operator, dtype))
                numbers = sorted({i * count // N_SAMPLES for i in range(N_SAMPLES)}) if count else []
                names += [f"{operator}/{str(dtype).removeprefix('torch.')}/{number}" for number in numbers]
    return names


def _samples(operator: str, dtype: torch.dtype) -> Iterator[Any]:
    torch.manual_seed(_SEED)
    try:
        yield from islice(table()[operator].sample_inputs("cpu", dtype, requires_grad=False), _N_CANDIDATES)
    except Exception:  # Some need a library that is not installed.
        return


def run_all(names: Iterable[str]) -> Iterator[tuple[str, str, Outcome]]:
    """Yield operator, type with number, and outcome of each case, in order."""
    for name, outcome in run_cases(names, run_case):
        operator, _, sample = name.partition("/")
        yield operator, sample, outcome


def run_case(name: str, folder: Path) -> Outcome:
    """Run a case in this process; the folder is unused."""
    from anole.config.entries import ModelSpec
    from anole.extract.decompositions import decompose
    from anole.extract.graph import normalize
    from anole.extract.torch import import_program

    torch.set_num_threads(1)
    operator, dtype, number = name.rsplit("/", 2)
    sample = next(islice(_samples(operator, getattr(torch, dtype)), int(number), None))
    call = Call(table()[operator].op, sample).eval()
    try:
        expected = pytree.tree_leaves(call(*(tensor.clone() for tensor in call.tensors.values())))
        if outside := _values_out_of_scope([*call.tensors.values()], expected):
            return Outcome("outside", outside)
        exported = torch.export.export(call, tuple(call.tensors.values()))
        core = exported.run_decompositions()
    except Exception as error:
        return Outcome("outside", f"torch does not run or export it: {one_line(error)}")
    program = decompose(exported)
    if outside := _operator_out_of_scope(core, program) or _comparison_out_of_scope(core, [*call.tensors.values()]):
        return Outcome("outside", outside)
    model = ModelSpec("case", "torch:torch:operator", {})
    try:
        imported = normalize(model, import_program(model, program, call.tensors))
        outs = compute(imported, {name: tensor.numpy() for name, tensor in call.tensors.items()})
    except AnoleError as error:
        return Outcome("refused", one_line(error))
    has_indices = expected[-1].dtype == torch.int64 and len(expected) == (1 if operator == "argsort" else 2)
    if operator in _DIM_POSITIONS and has_indices and not sample.kwargs.get("stable"):
        outs[-1], expected[-1] = _gather(operator, sample, outs[-1]).numpy(), _gather(operator, sample, expected[-1])
    return _compare(outs, expected)


def _gather(operator: str, sample: Any, indices: Any) -> torch.Tensor:
    """Return the elements of an operator's data at the indices that the operator returns."""
    data, indices = sample.input, torch.as_tensor(indices)
    dim = sample.kwargs.get("dim", (*sample.args[_DIM_POSITIONS[operator] :], -1)[0])
    keeps_dim = data.dim() == 0 or indices.dim() == data.dim()
    return data.gather(dim, indices) if keeps_dim else data.gather(dim, indices.unsqueeze(dim)).squeeze(dim)


def _dense(data: torch.Tensor) -> torch.Tensor:
    return data.clone(memory_format=torch.contiguous_format) if data.layout is torch.strided else data


def _called_operators(program: torch.export.ExportedProgram) -> list[torch._ops.OpOverload]:
    targets = dict.fromkeys(node.target for node in program.graph.nodes if node.op == "call_function")
    return [target for target in targets if isinstance(target, torch._ops.OpOverload)]


def _operator_out_of_scope(core: torch.export.ExportedProgram, program: torch.export.ExportedProgram) -> str | None:
    """Return why an operator is out of scope, or None if it is in scope.

    Args:
        core: the decomposition of the operator by torch.
        program: the decomposition of the operator by Anole.
    """
    for node in core.graph.nodes:
        if any(map(_is_symbolic, pytree.tree_leaves(node.meta.get("val")))):
            return f"{node.target} returns a number or a shape that depends on data"
    for node in core.graph.output_node().all_input_nodes:
        if "empty" in str(node.target):
            return f"returns uninitialized memory of {node.target}"
    for operator in _called_operators(core):
        if torch.Tag.nondeterministic_seeded in operator.tags:
            return f"{operator} is random"
    from anole.extract.converters import known_operators

    for operator in _called_operators(program):
        if torch.Tag.core not in operator.tags and operator.__name__ not in known_operators():
            return f"{operator} is not core ATen"
    return None


def _comparison_out_of_scope(core: torch.export.ExportedProgram, inputs: list[torch.Tensor]) -> str | None:
    """Return why a comparison is out of scope, or None: minima and maxima of NaN are not compared."""
    names = {"amax", "amin", "argmax", "argmin", "max", "min"} & {op._schema.name[6:] for op in _called_operators(core)}
    if names and any(value.is_floating_point() and bool(value.isnan().any()) for value in inputs):
        return f"takes NaN for {', '.join(sorted(names))}"
    return None


def _is_symbolic(value: Any) -> bool:
    numbers = value.shape if isinstance(value, torch.Tensor) else [value]
    return any(isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)) for number in numbers)


def _values_out_of_scope(inputs: list[Any], outputs: list[Any]) -> str | None:
    """Return why inputs or outputs are out of scope, or None if they are in scope."""
    for verb, values in (("takes", inputs), ("returns", outputs)):
        if not values or not all(isinstance(value, torch.Tensor) for value in values):
            return f"{verb} no tensor, or something else"
        if any(value.layout is not torch.strided for value in values):
            return f"{verb} a sparse tensor"
        if any(value.is_complex() for value in values):
            return f"{verb} complex numbers"
        if not all(value.numel() for value in values):
            return f"{verb} a tensor without elements"
    return None


def _compare(outputs: list[Any], expected: list[torch.Tensor]) -> Outcome:
    """Compare outputs with the expected ones, and return whether they are right or wrong, and why."""
    if len(outputs) != len(expected):
        return Outcome("wrong", f"{len(outputs)} outputs instead of {len(expected)}")
    for array, right in zip(outputs, expected, strict=True):
        actual = _tensor_of(array)
        if (actual.shape, actual.dtype) != (right.shape, right.dtype):
            return Outcome("wrong", f"{actual.dtype} {list(actual.shape)} instead of {right.dtype} {list(right.shape)}")
        try:
            torch.testing.assert_close(actual, right, equal_nan=True, rtol=_TOLERANCE, atol=_TOLERANCE)
        except AssertionError as error:
            return Outcome("wrong", one_line(error))
    return Outcome("right")


def _tensor_of(array: Any) -> torch.Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("int16").copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


if __name__ == "__main__":
    main()
