"""Run torch's own samples of its operators against Anole on this machine's processor; a CSV summary by operator.

    python -m benchmarks.zoo.torch_operators > docs/results/data/torch_operators.csv
    python -m benchmarks.zoo.torch_operators --cases 'index_select*,nn.functional.*pool*'

A case is a network that calls one operator of torch's test table (`op_db`) with one of the table's samples: tensors are
the network's inputs, all other arguments are fixed. It is traced by `torch.export` and imported, and its outputs are
compared with torch's. `kit.cases` lists the outcomes. ``cases`` has types and numbers of samples. ``outside`` are cases
that are random, complex, sparse or uninitialized, have a tensor without elements, take or return no tensor, have a
shape that depends on data, compute minima or maxima of NaN, or need an operator that is not core ATen and has no
converter, such as a singular value decomposition.

Torch does not specify which of equal elements `topk` and others select: indices are right if their elements are equal.
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
from benchmarks.common.arguments import described, listed
from benchmarks.common.rows import print_rows
from benchmarks.zoo.summary import COLUMNS, summarized
from kit.cases import Outcome, compute, one_line, run_cases

DTYPES = (torch.float32, torch.int64, torch.bool)
N_SAMPLES = 3
"""The maximum number of samples per operator and type."""
_N_CANDIDATES = 40
_SEED = 0
_TOLERANCE = 1e-4
_DIM_PLACES = {"argsort": 0, "kthvalue": 1, "mode": 0, "nanmedian": 0, "sort": 0, "topk": 1}
"""Operators whose last output is indices with arbitrary order of ties, and the position of the axis argument."""


class Call(torch.nn.Module):
    """A network that calls an operator; tensors among the arguments are inputs.

    Attributes:
        tensors: the inputs, by name.
    """

    def __init__(self, operator: Callable[..., Any], sample: Any) -> None:
        super().__init__()
        self._operator = operator
        self._given, self._structure = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        self._places = [place for place, value in enumerate(self._given) if isinstance(value, torch.Tensor)]
        self.tensors = {f"input_{place}": _dense(self._given[place].detach()) for place in self._places}

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Call the operator."""
        given = list(self._given)
        for place, tensor in zip(self._places, tensors, strict=True):
            given[place] = tensor
        arguments, named = pytree.tree_unflatten(given, self._structure)
        return self._operator(*arguments, **named)


def main() -> None:
    """Print the summary."""
    parser = described(__doc__)
    parser.add_argument("--cases", type=listed(), default=["*"], help="patterns of operators, comma-separated")
    given = parser.parse_args()
    print_rows(COLUMNS, summarized(run_all(case_names(given.cases))))


@cache
def table() -> dict[str, Any]:
    """Return torch's table of operators, by name."""
    # Otherwise torch's test suite would forbid this process to set flags of backends.
    with patch.object(torch.backends, "disable_global_flags"):
        from torch.testing._internal.common_methods_invocations import op_db

    return {".".join(filter(None, (each.name, each.variant_test_name))): each for each in op_db}


def case_names(patterns: Iterable[str] = ("*",)) -> list[str]:
    """Return the names of cases: operator, type and number of the sample; samples are spread over torch's samples."""
    names = []
    for operator, entry in table().items():
        for dtype in DTYPES:
            if dtype in entry.dtypes and any(fnmatch(operator, pattern) for pattern in patterns):
                count = sum(1 for _ in _samples(operator, dtype))
                chosen = sorted({place * count // N_SAMPLES for place in range(N_SAMPLES)}) if count else []
                names += [f"{operator}/{_name(dtype)}/{number}" for number in chosen]
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
        if outside := _unfit([*call.tensors.values()], expected):
            return Outcome("outside", outside)
        exported = torch.export.export(call, tuple(call.tensors.values()))
        core = exported.run_decompositions()
    except Exception as error:
        return Outcome("outside", f"torch does not run or export it: {one_line(error)}")
    program = decompose(exported)
    if outside := _untaken(core, program) or _unordered(core, [*call.tensors.values()]):
        return Outcome("outside", outside)
    model = ModelSpec("case", "torch:torch:operator", {})
    try:
        imported = normalize(model, import_program(model, program, call.tensors))
        found = compute(imported, {name: tensor.numpy() for name, tensor in call.tensors.items()})
    except AnoleError as error:
        return Outcome("refused", one_line(error))
    has_places = expected[-1].dtype == torch.int64 and len(expected) == (1 if operator == "argsort" else 2)
    if operator in _DIM_PLACES and has_places and not sample.kwargs.get("stable"):
        found[-1], expected[-1] = _taken(operator, sample, found[-1]).numpy(), _taken(operator, sample, expected[-1])
    return _compared(found, expected)


def _taken(operator: str, sample: Any, places: Any) -> torch.Tensor:
    """Return the elements of an operator's data at the indices that it returns."""
    data, places = sample.input, torch.as_tensor(places)
    dim = sample.kwargs.get("dim", (*sample.args[_DIM_PLACES[operator] :], -1)[0])
    is_plain = data.dim() == 0 or places.dim() == data.dim()
    return data.gather(dim, places) if is_plain else data.gather(dim, places.unsqueeze(dim)).squeeze(dim)


def _dense(data: torch.Tensor) -> torch.Tensor:
    return data.clone(memory_format=torch.contiguous_format) if data.layout is torch.strided else data


def _called(program: torch.export.ExportedProgram) -> list[torch._ops.OpOverload]:
    called = dict.fromkeys(node.target for node in program.graph.nodes if node.op == "call_function")
    return [each for each in called if isinstance(each, torch._ops.OpOverload)]


def _untaken(core: torch.export.ExportedProgram, program: torch.export.ExportedProgram) -> str | None:
    """Return why an operator is out of scope, or None.

    Args:
        core: its decomposition by torch.
        program: its decomposition by Anole.
    """
    for node in core.graph.nodes:
        if any(map(_is_symbolic, pytree.tree_leaves(node.meta.get("val")))):
            return f"{node.target} returns a number or a shape that depends on data"
    for node in core.graph.output_node().all_input_nodes:
        if "empty" in str(node.target):
            return f"returns uninitialized memory of {node.target}"
    for each in _called(core):
        if torch.Tag.nondeterministic_seeded in each.tags:
            return f"{each} is random"
    from anole.extract.converters import known_operators

    for each in _called(program):
        if torch.Tag.core not in each.tags and each.__name__ not in known_operators():
            return f"{each} is not core ATen"
    return None


def _unordered(core: torch.export.ExportedProgram, inputs: list[torch.Tensor]) -> str | None:
    """Return why a comparison is out of scope, or None: minima and maxima of NaN are not compared."""
    extremes = {"amax", "amin", "argmax", "argmin", "max", "min"} & {each._schema.name[6:] for each in _called(core)}
    if extremes and any(value.is_floating_point() and bool(value.isnan().any()) for value in inputs):
        return f"takes what is no number for {', '.join(sorted(extremes))}"
    return None


def _is_symbolic(value: Any) -> bool:
    numbers = value.shape if isinstance(value, torch.Tensor) else [value]
    return any(isinstance(each, (torch.SymInt, torch.SymFloat, torch.SymBool)) for each in numbers)


def _unfit(inputs: list[Any], outputs: list[Any]) -> str | None:
    """Return why values are out of scope, or None."""
    for what, values in (("takes", inputs), ("returns", outputs)):
        if not values or not all(isinstance(value, torch.Tensor) for value in values):
            return f"{what} no tensor, or something else"
        if any(value.layout is not torch.strided for value in values):
            return f"{what} a sparse tensor"
        if any(value.is_complex() for value in values):
            return f"{what} complex numbers"
        if not all(value.numel() for value in values):
            return f"{what} a tensor without elements"
    return None


def _compared(found: list[Any], expected: list[torch.Tensor]) -> Outcome:
    """Compare outputs, and return whether they are right or wrong, and why."""
    if len(found) != len(expected):
        return Outcome("wrong", f"{len(found)} outputs instead of {len(expected)}")
    for array, tensor in zip(found, expected, strict=True):
        own = _tensor_of(array)
        if (own.shape, own.dtype) != (tensor.shape, tensor.dtype):
            return Outcome("wrong", f"{own.dtype} {list(own.shape)} instead of {tensor.dtype} {list(tensor.shape)}")
        try:
            torch.testing.assert_close(own, tensor, equal_nan=True, rtol=_TOLERANCE, atol=_TOLERANCE)
        except AssertionError as error:
            return Outcome("wrong", one_line(error))
    return Outcome("right")


def _tensor_of(array: Any) -> torch.Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("int16").copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


if __name__ == "__main__":
    main()
