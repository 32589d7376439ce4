"""Compiled networks beside other engines, all timed in turns in one process for each network, as CSV.

    python benchmarks/networks.py builds/* > docs/results/networks.csv
    python benchmarks/networks.py builds/* --rivals torch,torch.compile --rounds 10

Rivals: ``onnxruntime``, ``openvino`` (where it is installed), ``torch`` (eager), ``torch.compile`` (max-autotune, on
a GPU with CUDA graphs), and ``untuned``, the same network compiled with default configs. All in fp32 without TF32, on
the same inputs and threads. A speedup is the median of the rounds' ratios of medians; its spread is their quartiles.
"""

from __future__ import annotations

import argparse
import csv
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from anole.evaluate import draw_inputs, read_build, relative_error
from anole.evaluate.engines import Engine
from anole.evaluate.interleave import Pace, time_interleaved
from anole.machine import software_versions
from anole.spec import ModelSpec
from anole.targets import get_target
from anole.targets.base import Device

if TYPE_CHECKING:
    from numpy.typing import NDArray

COLUMNS = (
    *("network", "target", "batch", "threads", "engine", "version", "latency_ms", "latency_q1_ms", "latency_q3_ms"),
    *("speedup", "speedup_q1", "speedup_q3", "relative_error", "start_s", "rounds", "tuned_share", "tuner", "trials"),
)
PACKAGES = {"onnxruntime": "onnxruntime", "openvino": "openvino", "torch": "torch", "torch.compile": "torch"}


def main() -> None:
    """Prints a line for each network and engine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", type=Path)
    parser.add_argument("--rivals", default="onnxruntime,openvino,torch,torch.compile,untuned", help="with commas")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--one", action="store_true", help="this process times one build")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    writer = csv.DictWriter(sys.stdout, COLUMNS)
    if arguments.one:
        writer.writerows(compare(arguments.builds[0], arguments.rivals.split(","), arguments.rounds))
        return
    writer.writeheader()
    for build in arguments.builds:
        sys.stdout.flush()
        options = ["--rivals", arguments.rivals, "--rounds", str(arguments.rounds), "--one"]
        environment = {**os.environ, **_device(read_build(build)).environment()}
        done = subprocess.run([sys.executable, __file__, str(build), *options], env=environment, check=False)
        if done.returncode:
            logging.warning("%s: was not compared", build)


def compare(folder: Path, rivals: Sequence[str], rounds: int) -> Iterator[dict[str, Any]]:
    """Yields a row for a build and for each rival."""
    build = read_build(folder)
    device = _device(build)
    inputs = draw_inputs(build)
    with tempfile.TemporaryDirectory() as scratch:
        starts = {"anole": lambda: _anole(folder, inputs, device), **_rivals(build, inputs, device, Path(scratch))}
        engines, start_s = _started({name: starts[name] for name in ("anole", *rivals)})
        expected = engines["torch" if "torch" in engines else "anole"].compute()
        times = time_interleaved({name: engine.run for name, engine in engines.items()}, Pace(rounds=rounds))
        versions = software_versions()
        medians = {name: np.array([np.median(burst) for burst in bursts]) for name, bursts in times.items()}
        for name, engine in engines.items():
            low, middle, high = np.quantile(1e3 * np.concatenate(times[name]), (0.25, 0.5, 0.75))
            slow, ratio, fast = np.quantile(medians[name] / medians["anole"], (0.25, 0.5, 0.75))
            row = {
                **{"network": build["model"], "target": build["target"], "batch": build["inputs"][0]["shape"][0]},
                **{"threads": device.threads, "engine": name, "rounds": len(times[name])},
                **{"version": versions.get(PACKAGES.get(name, "anole"), "")},
                **{"latency_ms": middle, "latency_q1_ms": low, "latency_q3_ms": high},
                **{"speedup": ratio, "speedup_q1": slow, "speedup_q3": fast},
                **{"relative_error": relative_error(engine.compute(), expected), "start_s": start_s[name]},
                **{"tuned_share": build["coverage"]["share"], "tuner": build["preset"], "trials": build["trials"]},
            }
            yield {column: f"{value:.4g}" if isinstance(value, float) else value for column, value in row.items()}


def _started(starts: dict[str, Callable[[], Engine]]) -> tuple[dict[str, Engine], dict[str, float]]:
    """Returns the engines that start, each run once, and the seconds which that took."""
    engines, start_s = {}, {}
    for name, start in starts.items():
        began_s = time.perf_counter()
        try:
            engines[name] = start()
            engines[name].compute()
        except Exception as error:
            if name == "anole":
                raise
            logging.warning("%s does not run: %s: %s", name, type(error).__name__, str(error).strip()[:200])
            engines.pop(name, None)
            continue
        start_s[name] = time.perf_counter() - began_s
    return engines, start_s


def _rivals(
    build: dict[str, Any], inputs: list[NDArray[Any]], device: Device, scratch: Path
) -> dict[str, Callable[[], Engine]]:
    """Returns how each rival is started on a build's network."""
    from anole.evaluate.engines import onnxruntime_engine

    model = ModelSpec.from_json(build["model"], build["entry"])

    def exported() -> Path:
        return Path(model.location) if model.scheme == "onnx" else _exported(model, inputs, scratch / "model.onnx")

    return {
        "onnxruntime": lambda: onnxruntime_engine(exported(), inputs, device.threads),
        "openvino": lambda: _openvino(exported(), inputs, device.threads),
        "torch": lambda: _torch(model, inputs, device, compiled=False),
        "torch.compile": lambda: _torch(model, inputs, device, compiled=True),
        "untuned": lambda: _untuned(build, inputs, device, scratch / "untuned"),
    }


def _anole(folder: Path, inputs: list[NDArray[Any]], device: Device) -> Engine:
    from anole.evaluate.engines import build_engine

    return build_engine(folder, inputs, device.runs_on, device.threads)


def _untuned(build: dict[str, Any], inputs: list[NDArray[Any]], device: Device, folder: Path) -> Engine:
    from anole.build import BuildSettings, compile_build
    from anole.extract import extract

    model = ModelSpec.from_json(build["model"], build["entry"])
    manifest, _ = extract(model, build["target"], build["target_description"], device.template_version, device.takes)
    logging.disable(logging.WARNING)
    compile_build(model, manifest, BuildSettings("untuned", "random", 0, False, 0), {}, folder)
    logging.disable(logging.NOTSET)
    return _anole(folder, inputs, device)


def _torch(model: ModelSpec, inputs: list[NDArray[Any]], device: Device, *, compiled: bool) -> Engine:
    import torch

    from anole.evaluate.engines import torch_engine
    from anole.extract.torch import make_network

    torch.set_num_threads(device.threads)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    network = make_network(model).to(device.runs_on)
    arguments = tuple(torch.from_numpy(array).to(device.runs_on) for array in inputs)
    if not compiled:
        return torch_engine(network, arguments)
    return torch_engine(torch.compile(network, mode="max-autotune"), arguments, "torch.compile")


def _exported(model: ModelSpec, inputs: list[NDArray[Any]], path: Path) -> Path:
    if not path.exists():
        import torch

        from anole.evaluate.engines import export_onnx
        from anole.extract.torch import make_network

        export_onnx(make_network(model), tuple(map(torch.from_numpy, inputs)), path)
    return path


def _openvino(path: Path, inputs: list[NDArray[Any]], threads: int) -> Engine:
    import openvino

    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    core = openvino.Core()
    request = core.compile_model(core.read_model(path), "CPU", options).create_infer_request()
    feeds = [openvino.Tensor(array, shared_memory=True) for array in inputs]
    for position, tensor in enumerate(feeds):
        request.set_input_tensor(position, tensor)

    def outputs(_: object) -> list[NDArray[Any]]:
        return [tensor.data.copy() for tensor in request.output_tensors]

    return Engine("openvino", request.infer, outputs)


def _device(build: dict[str, Any]) -> Device:
    target = get_target(build["target_description"])
    assert not hasattr(target, "simulate"), "a simulated network has no rivals"
    return target


if __name__ == "__main__":
    main()
