"""Factories of engines that run a build's network in the calling process, and of its ONNX file."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from anole.config.entries import ModelSpec
from anole.documents.build import read_build
from anole.errors import BuildError
from anole.evaluate.comparison import timing_inputs
from anole.evaluate.engines import Engine, export_onnx, onnxruntime_engine, torch_engine, torch_network
from anole.targets import get_target
from anole.targets.base import DeviceLocation


def start_deployed(folder: Path) -> Engine:
    """Return an engine that runs a build as users do: with its ``load.py``, from arrays to arrays.

    Raises:
        BuildError: the build cannot be loaded.
    """
    # Programs that only run a build do not have torch, which TVM would import.
    if "torch" not in sys.modules:
        import_module("anole.host.block_torch_import")
    try:
        model: Callable[..., list[NDArray[Any]]] = runpy.run_path(str(folder / "load.py"))["Model"]()
    except Exception as error:
        raise BuildError(f"{folder}: load.py cannot load it: {error}") from error
    inputs = timing_inputs(read_build(folder))

    def set_inputs(new_inputs: Sequence[NDArray[Any]]) -> None:
        inputs[:] = new_inputs

    return Engine("build", lambda: model(*inputs), list, set_inputs)


def start_reference(name: str, folder: Path, scratch: Path) -> Engine:
    """Return a reference of a build, ``torch`` or ``onnxruntime``, on the same inputs and threads.

    The folder `scratch` holds files that several engines share.

    Raises:
        BuildError: the build is for a simulator, or ONNX Runtime cannot load the network.
        ExtractError: the model cannot be loaded.
    """
    build = read_build(folder)
    inputs, device = timing_inputs(build), get_target(build.target_description)
    if device.location is DeviceLocation.SIMULATOR:
        raise BuildError("a simulated network cannot be compared with other engines")
    if name == "onnxruntime":
        return onnxruntime_engine(onnx_file(build.model_spec, inputs, scratch), inputs, device.threads)
    return torch_engine(*torch_network(build.model_spec, inputs, device.threads, device.runs_on))


def onnx_file(model: ModelSpec, inputs: Sequence[NDArray[Any]], scratch: Path) -> Path:
    """Return the network's ONNX file.

    A torch network is exported in a separate process, to avoid importing torch in this one.
    """
    path = scratch / "model.onnx"
    if model.scheme == "onnx":
        import onnx

        from anole.extract.onnx.selection import serialize_part

        part = serialize_part(model)
        if part is None:
            return Path(model.location)
        proto = onnx.load_from_string(part)
        onnx.external_data_helper.load_external_data_for_model(proto, str(Path(model.location).parent))
        onnx.save(proto, path)
    elif not path.exists():
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            process.submit(_export, model, inputs, path).result()
    return path


def _export(model: ModelSpec, inputs: Sequence[NDArray[Any]], path: Path) -> None:
    export_onnx(*torch_network(model, inputs, 1), path)
