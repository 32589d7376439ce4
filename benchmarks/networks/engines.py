"""Start the engines that can run a build's network, in the calling process."""

from __future__ import annotations

import logging
import subprocess
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.config.entries import ModelSpec
from anole.documents.build import Build, read_build
from anole.errors import BuildError
from anole.evaluate.comparison import relative_error, timing_inputs
from anole.evaluate.correctness.check import MAX_RELATIVE_ERROR
from anole.evaluate.engine_factories import onnx_file, start_reference
from anole.evaluate.engines import Engine, build_engine, onnxruntime_engine, precision_of, torch_engine, torch_network
from anole.targets import get_target
from anole.targets.base import Device

OWN = "anole"
PACKAGES = {
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "openvino.default": "openvino",
    "ncnn": "ncnn",
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

    Baselines share files in the folder `scratch`. ONNX Runtime, OpenVINO and ncnn default to the build's threads.
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
        case "ncnn":
            return ncnn_engine(onnx_file(model, inputs, scratch), inputs, threads or device.threads)
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


def ncnn_engine(path: Path, inputs: list[NDArray[Any]], threads: int) -> Engine:
    """Return a float32 ncnn engine for a file; raise a `BuildError` if its outputs differ from ONNX Runtime's."""
    import ncnn
    import onnx

    net = ncnn.Net()
    net.opt.num_threads = threads
    for option in dir(net.opt):
        if option.startswith(("use_fp16_", "use_bf16_")):
            setattr(net.opt, option, False)
    with TemporaryDirectory() as folder:
        # pnnx writes next to the model, and needs the weights in the same file or in the working directory.
        onnx.save(onnx.load(path), f"{folder}/net.onnx")
        pnnx = str(metadata.distribution("pnnx").locate_file("pnnx/pnnx"))
        subprocess.run([pnnx, "net.onnx", "fp16=0"], cwd=folder, check=True, capture_output=True)
        if net.load_param(f"{folder}/net.ncnn.param") or net.load_model(f"{folder}/net.ncnn.bin"):
            raise BuildError("ncnn cannot load the network that pnnx converted")
    arguments = [ncnn.Mat(array, batch_index=0).clone() for array in inputs]
    # With one thread, ONNX Runtime has no thread pool, which would disturb ncnn.
    expected = onnxruntime_engine(path, inputs, threads=1).compute()

    def run() -> list[Any]:
        extractor = net.create_extractor()
        codes = [extractor.input(f"in{number}", argument) for number, argument in enumerate(arguments)]
        results = [extractor.extract(f"out{number}") for number in range(len(expected))]
        if any((*codes, *(code for code, _ in results))):
            raise BuildError("ncnn cannot run the network that pnnx converted")
        return [output for _, output in results]

    def outputs(results: Any) -> list[NDArray[Any]]:
        arrays = [np.array(output.numpy(batch_index=0)) for output in results]
        # The product of two matrices has an additional axis in ncnn.
        return [array.reshape(right.shape) for array, right in zip(arrays, expected, strict=True)]

    engine = Engine("ncnn", run, outputs)
    if (error := relative_error(engine.compute(), expected)) > MAX_RELATIVE_ERROR:
        raise BuildError(f"ncnn's outputs differ from ONNX Runtime's by {error:.1e}")
    return engine
