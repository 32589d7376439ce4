"""Run a build on given or random inputs, on its device or on the simulator, or describe its inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from anole.documents.build import Build, TensorInfo, check_build_files, read_build
from anole.errors import BuildError
from anole.evaluate.comparison import timing_inputs
from anole.evaluate.network_runner import runner_of
from anole.ir.ranges import SizeRange
from anole.targets import get_target
from anole.text_format import pluralize


def describe_build(folder: Path) -> str:
    """Return the names, types and shapes of a build's inputs and outputs as text.

    Raises:
        DocumentError: the folder is not a build.
    """
    build = read_build(folder)
    lines = []
    for title, infos in (("inputs", build.inputs), ("outputs", build.outputs)):
        width = max((len(info.name) for info in infos), default=0)
        lines += [f"{title}:", *(f"  {info.name:<{width}}  {info.dtype} {_shape(info)}" for info in infos)]
    lines += [f"{name} may be {sizes}" for name, sizes in (build.ranges or {}).items()]
    return "\n".join(lines)


def _shape(info: TensorInfo) -> str:
    names = info.varying or (None,) * len(info.shape)
    return f"[{', '.join(name or str(extent) for name, extent in zip(names, info.shape, strict=True))}]"


def run_build(
    folder: Path, input_paths: Sequence[Path], output: Path | None = None, seed: int = 0
) -> dict[str, NDArray[Any]]:
    """Run a build once and return its outputs by name.

    Inputs are one ``.npy`` each, in order, or one ``.npz`` with all inputs by name. Without files, they are random;
    seed 0 gives the inputs of the evaluation. Outputs are written as ``.npz`` by name; a single one may be ``.npy``.

    Raises:
        DocumentError: the folder is not a build, or its files do not match its description.
        BuildError: the build cannot run on this machine, or the inputs do not match it.
    """
    build = read_build(folder)
    check_build_files(folder, build)
    inputs = _read_inputs(build, input_paths) if input_paths else timing_inputs(build, seed)
    target = get_target(build.target_description)
    if (absence := target.absence()) is not None:
        raise BuildError(f"{folder}: {absence}")
    runner = runner_of(target)
    arrays = runner.run(folder, build, inputs)
    outputs = {info.name: array for info, array in zip(build.outputs, arrays, strict=True)}
    if output is not None:
        _write(output, outputs)
    return outputs


def _read_inputs(build: Build, paths: Sequence[Path]) -> list[NDArray[Any]]:
    """Return the inputs of a build, in order."""
    infos, sizes = build.inputs, dict[str, int]()
    arrays: dict[str, NDArray[Any]] = {}
    for path, info in zip(paths, [*infos, *[None] * len(paths)], strict=False):
        try:
            loaded = np.load(path)
            named = {} if isinstance(loaded, np.ndarray) else dict(loaded)
        except (OSError, ValueError, EOFError, BadZipFile) as error:
            raise BuildError(f"{path}: cannot be read as .npy or .npz: {error}") from error
        if isinstance(loaded, np.ndarray):
            if info is None:
                raise BuildError(f"{path}: is one file too many; the build has {pluralize(len(infos), 'input')}")
            named = {info.name: loaded}
        arrays |= named
    for info in infos:
        array = arrays.get(info.name)
        if (expected := mismatch(None if array is None else array.shape, info, build.ranges or {}, sizes)) is not None:
            actual = "none" if array is None else f"shape {list(array.shape)}"
            raise BuildError(f"input {info.name}: found {actual}; expected {info.dtype} of {expected}")
    return [np.asarray(arrays[info.name], info.dtype, order="C") for info in infos]


def mismatch(
    shape: tuple[int, ...] | None, info: TensorInfo, ranges: Mapping[str, SizeRange], sizes: dict[str, int]
) -> str | None:
    """Return the expected shape as text if an input has another one, or None.

    The sizes of the input's ranges are stored in `sizes`, since other inputs must have the same.
    """
    varying = info.varying or (None,) * len(info.shape)
    pairs = list(zip(varying, info.shape, shape or (), strict=False))
    if shape is not None and len(shape) == len(info.shape):
        if all(size == extent if name is None else size in ranges[name] for name, extent, size in pairs):
            if all(sizes.setdefault(name, size) == size for name, _, size in pairs if name is not None):
                return None
    allowed = {name: f"{sizes.get(name, ranges[name])}" for name in dict.fromkeys(filter(None, varying))}
    return ", ".join([f"shape {_shape(info)}", *(f"{name} {size}" for name, size in allowed.items())])


def _write(path: Path, outputs: Mapping[str, NDArray[Any]]) -> None:
    if path.suffix not in (".npy", ".npz") or (path.suffix == ".npy" and len(outputs) > 1):
        raise BuildError(
            f"{path}: the file for {len(outputs)} outputs must be .npz{'' if len(outputs) > 1 else ' or .npy'}"
        )
    try:
        if path.suffix == ".npy":
            np.save(path, next(iter(outputs.values())))
        else:
            np.savez(path, allow_pickle=False, **outputs)
    except OSError as error:
        raise BuildError(f"{path}: cannot be written: {error}") from error
