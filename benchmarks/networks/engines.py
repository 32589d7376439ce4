"""Start the engines that can run a build's network, in the calling process."""

from __future__ import annotations

import logging
from importlib import metadata
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from anole.config.entries import ModelSpec
from anole.documents.build import Build, read_build
from anole.evaluate.comparison import timing_inputs
from anole.evaluate.engine_factories import onnx_file, start_reference
from anole.evaluate.engines import Engine, build_engine, onnxruntime_engine, precision_of, torch_engine, torch_network
from anole.targets import get_target
from anole.targets.base import Device

OWN = "anole"
PACKAGES = {
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "openvino.default": "openvino",
    "torch": "torch",
    "torch.compile": "torch",
    "untuned": "anole",
}
"""The package of each baseline, by the name of the baseline."""


def version_of(engine: str) -> str:
    """Return the version of an engine's package; empty if the package is not installed."""
    return next((package.version for package in metadata.distributions(name=PACKAGES.get(engine, OWN))), "")


def start_engine(name: str, folder: Path, scratch: Path, threads: int | None = None) -> Engine:
    """Start the compiled build itself (`OWN`), or a baseline on the same inputs.

    Baselines share files in the folder `scratch`. ONNX Runtime and OpenVINO default to the build's number of threads.
    """
    build = read_build(folder)
    inputs = timing_inputs(build)
    device: Device = get_target(build.target_description)
    model = build.model_spec
    match name:
        case "onnxruntime":
            return onnxruntime_engine(onnx_file(model, inputs, scratch), inputs, threads or device.threads)
        case "torch":
            return start_reference(name, folder, scratch)
        case "openvino" | "openvino.default":
            precision = {"INFERENCE_PRECISION_HINT": "f32"} if name == "openvino" else {}
            return openvino_engine(onnx_file(model, inputs, scratch), inputs, threads or device.threads, precision)
        case "torch.compile":
            import torch

            network, arguments = torch_network(model, inputs, device.threads, device.runs_on)
            return torch_engine(torch.compile(network, mode="max-autotune"), arguments, name)
        case "untuned":
            folder = _compile_untuned(build, model, device, scratch / "untuned")
    return build_engine(folder, inputs, device.runs_on, device.threads)


def _compile_untuned(build: Build, model: ModelSpec, device: Device, folder: Path) -> Path:
    from anole.extract.stage import extract_tasks

    manifest, _ = extract_tasks(model, build.target, device)
    compile_untuned(model, manifest, "untuned", folder)
    return folder


def compile_untuned(model: ModelSpec, manifest: Any, name: str, folder: Path) -> None:
    """Compile a network with default configs, without warning that it is not tuned."""
    from anole.compiler.build import BuildSettings, compile_build
    from anole.evaluate.correctness.winograd_error import has_large_rounding_error

    logging.disable(logging.WARNING)
    settings = BuildSettings(name, "random", 0, False, 0)
    compile_build(model, manifest, settings, {}, folder, has_large_rounding_error=has_large_rounding_error)
    logging.disable(logging.NOTSET)


def openvino_engine(path: Path, inputs: list[NDArray[Any]], threads: int, precision: dict[str, str]) -> Engine:
    """Return an OpenVINO engine for a file, with options for its precision."""
    import onnx
    import openvino

    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", **precision}
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", options)
    request = compiled.create_infer_request()
    for position, array in enumerate(inputs):
        request.set_input_tensor(position, openvino.Tensor(array))

    def outputs(_: object) -> list[NDArray[Any]]:
        return [tensor.data.copy() for tensor in request.output_tensors]

    hint = str(compiled.get_property("INFERENCE_PRECISION_HINT").to_string()).replace("f32", "float32")
    file_precision = precision_of(node.op_type for node in onnx.load(path, load_external_data=False).graph.node)
    return Engine("openvino", request.infer, outputs, precision=file_precision.replace("float32", hint))
