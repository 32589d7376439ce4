"""Models given as objects, files or names, as entries of models.yaml; a module is exported into the project."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anole.config.onnx_files import onnx_names
from anole.errors import ExtractError, SpecError
from anole.extract.error_context import convert_to_extract_error
from anole.files import write_atomically
from anole.ir.ranges import SizeRange

if TYPE_CHECKING:
    import torch

    from anole.api.call_format import CallFormat, FlatModule

_Ranges = Mapping[int, tuple[str, SizeRange]]
"""The varying axes of an input, with the name and the sizes of each."""

_MODULES = "modules"
"""The project's folder of exported modules: Python files that load a program next to them."""

_LOADER = '''"""Written by anole.compile: the module that was exported into a file next to this one."""

from pathlib import Path

import torch


class Exported(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.program = torch.export.load(Path(__file__).with_suffix(".pt2")).module(check_guards=False)

    def forward(self, **tensors):
        return self.program(**tensors)

    def train(self, mode=True):
        return self  # a program keeps the mode in which it was exported
'''


@dataclass(frozen=True)
class Source:
    """A model's name and entry in models.yaml, and for modules the format of their calls."""

    name: str
    entry: Mapping[str, Any]
    call: CallFormat | None = None


def of_text(text: str, dims: Mapping[str, int | str], inputs: Mapping[str, str] | None = None) -> Source:
    """Return the source for an ONNX file, a torch factory (``module:function``), or ``torchvision:NAME``.

    Shapes of `inputs` are texts such as ``1,3,224,224``. By default, the input of a torchvision network is 1,3,224,224.

    Raises:
        SpecError: a dynamic dimension of an ONNX file has no size.
    """
    scheme, _, rest = text.partition(":")
    shapes = {name: [_extent(extent) for extent in shape.split(",")] for name, shape in (inputs or {}).items()}
    sizes = {name: _extent(str(size)) for name, size in dims.items()}
    if scheme in ("onnx", "") or not rest:
        path = Path(rest or text).expanduser().absolute()
        _check_dims(path, sizes, shapes)
        rest, text = path.stem, f"onnx:{path}"
    elif scheme == "torchvision":
        shapes = shapes or {"x": [1, 3, 224, 224]}
    elif scheme != "torch":
        rest, text = text, f"torch:{text}"
    entry = {"source": text, **({"dims": sizes} if sizes else {}), **({"inputs": shapes} if shapes else {})}
    return Source(f"{_plain(rest)}-{digest(repr(entry))}", entry)


def _extent(text: str) -> int | str:
    return int(text) if text.strip().isdecimal() else text.strip()


def _check_dims(path: Path, sizes: Mapping[str, Any], shapes: Mapping[str, Any]) -> None:
    """Raise SpecError for the dynamic dimensions of an ONNX file that have no size."""
    names = onnx_names(path)
    missing = [symbol for symbol in (names.symbols if names else ()) if symbol not in sizes and symbol != "?"]
    if names and missing and not shapes:
        flags = " ".join(f"--dim {symbol}={'1' if symbol == missing[0] else '16..512'}" for symbol in missing)
        raise SpecError(
            "", f"found dynamic dimensions without a size: {', '.join(missing)}; give sizes or ranges: `{flags}`, "
            "or in Python `dims=`", str(path)
        )  # fmt: skip


def of_module(
    project: Path,
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Mapping[str, Mapping[int, Any]],
) -> Source:
    """Export a module in evaluation mode into a project, unless it is there, and return its source.

    Raises:
        ExtractError: the module cannot be exported.
        SpecError: a dynamic dimension has no maximum.
    """
    import torch
    from torch.utils import _pytree as pytree

    from anole.api.call_format import CallFormat, FlatModule, form_of, is_tensor

    call, kind = CallFormat.of(module, args, kwargs), type(module).__name__
    arrays = filter(is_tensor, pytree.tree_leaves((tuple(args), dict(kwargs))))
    tensors = {name: torch.as_tensor(array).detach() for name, array in zip(call.names, arrays, strict=True)}
    if unknown := sorted(set(dynamic_shapes) - set(tensors)):
        raise SpecError("dynamic_shapes", f"found {', '.join(unknown)}; allowed: {', '.join(tensors)}", kind)
    ranges = {
        name: {axis: _range(f"dynamic_shapes.{name}[{axis}]", dim) for axis, dim in axes.items()}
        for name, axes in ((name, dynamic_shapes.get(name) or {}) for name in tensors)
    }
    with _in_evaluation_mode(module), torch.no_grad():
        result, state = _run(FlatModule(module, call), tensors, kind)
        call = replace(call.with_state(state), result=form_of(result))
        buffers = dict(zip(call.names[len(tensors) :], state.values(), strict=True))
        tensors, ranges = tensors | buffers, ranges | {name: {} for name in buffers}
        program = _export(FlatModule(module, call), tensors, ranges, kind)
    entry = {name: _input(tensor, ranges[name]) for name, tensor in tensors.items()}
    name = f"{_plain(kind)}-{digest(program.graph_module.code, repr(entry), *_weights(program))}"
    loader = project / _MODULES / f"{name.replace('-', '_')}.py"
    if not loader.exists():
        loader.parent.mkdir(parents=True, exist_ok=True)
        torch.export.save(program, loader.with_suffix(".pt2"))
        write_atomically(loader, _LOADER)
    source = {"source": f"torch:{_MODULES}.{loader.stem}:Exported", "inputs": entry}
    return Source(name, source, call)


def _run(module: FlatModule, tensors: Mapping[str, torch.Tensor], kind: str) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return a module's result for these tensors, and the initial values of the buffers that it writes."""
    from anole.extract.torch import run_on_copies

    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    with convert_to_extract_error(f"{kind}: does not run on the example call", line=0):
        result, state = run_on_copies(module, (), copies)
    if written := [name for name, copy in copies.items() if copy._version]:
        raise ExtractError(f"{kind}: writes to its inputs {', '.join(written)}; a build cannot: copy them first")
    return result, {name.removeprefix("module."): value for name, value in state.items()}


def _export(
    module: FlatModule, tensors: Mapping[str, torch.Tensor], ranges: Mapping[str, _Ranges], kind: str
) -> torch.export.ExportedProgram:
    import torch

    # The import of a range samples sizes that may exceed it.
    shapes = {
        name: {axis: torch.export.Dim(dim, min=r.min, max=max(r.samples)) for axis, (dim, r) in axes.items()}
        for name, axes in ranges.items()
    }
    with convert_to_extract_error(f"{kind}: torch.export cannot trace it", line=0):
        return torch.export.export(module, (), dict(tensors), dynamic_shapes={"tensors": shapes})


@contextmanager
def _in_evaluation_mode(module: torch.nn.Module) -> Iterator[None]:
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, is_training in modes.items():
            part.training = is_training


def _range(path: str, dim: Any) -> tuple[str, SizeRange]:
    """Return the name and the sizes of a `torch.export.Dim`."""
    name, low, high = (getattr(dim, field, None) for field in ("__name__", "min", "max"))
    if not isinstance(name, str) or not isinstance(low, int) or not isinstance(high, int) or not 0 < low < high:
        raise SpecError(path, f"found {dim!r}; give a torch.export.Dim with min and max", "anole.compile")
    return name, SizeRange(low, high)


def _input(tensor: torch.Tensor, ranges: _Ranges) -> Any:
    """Return an input's entry in models.yaml."""
    shape: list[Any] = list(tensor.shape)
    for axis, (name, sizes) in ranges.items():
        shape[axis] = {name: str(sizes)}
    dtype = str(tensor.dtype).removeprefix("torch.")
    return shape if dtype == "float32" else {"shape": shape, "dtype": dtype}


def _weights(program: torch.export.ExportedProgram) -> Iterator[bytes]:
    import torch

    for name, value in sorted({**program.state_dict, **program.constants}.items()):
        yield name.encode()
        if isinstance(value, torch.Tensor):
            yield value.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def digest(*parts: str | bytes) -> str:
    """Return a short name for these contents."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(part.encode() if isinstance(part, str) else part)
    return sha.hexdigest()[:10]


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_").lower()[:60] or "model"
